// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// replicatedMemory keeps in replicated data which entities run, in a set for each shard. Nobody is kept from changing it who has the
// shard no more, and it is lost with its nodes, so only where nothing fails all is found again.
type replicatedMemory struct {
	d      *sharding
	knows  map[owner]map[string]bool        // what each owner has loaded, and stored since
	last   map[shards.Shard]map[string]bool // what the last one knew
	unsure map[shards.Shard]bool            // an update of it had no answer when it was loaded again
	open   map[shards.Shard]int             // updates without an answer
	turns  map[identity.Node]map[shards.Shard][]func()
}

func newReplicatedMemory(d *sharding) *replicatedMemory {
	return &replicatedMemory{
		d: d, knows: map[owner]map[string]bool{}, last: map[shards.Shard]map[string]bool{}, unsure: map[shards.Shard]bool{}, open: map[shards.Shard]int{},
		turns: map[identity.Node]map[shards.Shard][]func(){},
	}
}

func memoryKey(n shards.Shard) string { return fmt.Sprintf("shard-account||%d", n) }

// ask loads or stores which entities of a shard run.
func (m *replicatedMemory) ask(s *site, r shards.Remember, me owner, answer func(shard.Input)) {
	if r.Update != nil {
		m.open[r.Shard]++
	}
	m.inTurn(s, r.Shard, func(e *errand) {
		if r.Update == nil {
			ids, err := m.load(e, r.Shard)
			if err != nil {
				m.d.hit("replicated memory", "load failed")
				answer(shard.LoadFailed{})
				return
			}
			m.d.hit("replicated memory", "loaded")
			m.loaded(s, me, ids)
			answer(shard.Loaded{Entities: ids})
			return
		}
		err := modify(e, memoryKey(r.Shard), func(set crdt.ORSet[string]) (crdt.ORSet[string], error) {
			set, err := set.Add(s.h.data.self, slices.DeleteFunc(slices.Clone(r.Update.Started), set.Contains)...)
			if err != nil {
				return set, err
			}
			return set.Remove(s.h.data.self, r.Update.Stopped...)
		})
		if err != nil {
			m.d.hit("replicated memory", "update failed")
			answer(shard.UpdateFailed{ID: r.Update.ID})
			return
		}
		m.d.hit("replicated memory", "updated")
		m.open[r.Shard]--
		note(m.knows[me], r.Update)
		answer(shard.Updated{ID: r.Update.ID})
	})
}

func (m *replicatedMemory) load(e *errand, n shards.Shard) ([]string, error) {
	set, err := read[crdt.ORSet[string]](e, memoryKey(n), replication.Level{Kind: replication.Majority}, false)
	if err != nil {
		return nil, err
	}
	return set.Elements()
}

// inTurn makes a call when those of the node for the same shard are over.
func (m *replicatedMemory) inTurn(s *site, n shards.Shard, call func(e *errand)) {
	turns := m.turns[s.h.p.Node()]
	if turns == nil {
		turns = map[shards.Shard][]func(){}
		m.turns[s.h.p.Node()] = turns
	}
	turns[n] = append(turns[n], func() {
		s.errand(func(e *errand) {
			call(e)
			s.after(0, func() {
				if turns[n] = turns[n][1:]; len(turns[n]) > 0 {
					turns[n][0]()
				}
			})
		})
	})
	if len(turns[n]) == 1 {
		turns[n][0]()
	}
}

// foundedAnew takes note of a cluster that is founded. If nobody is left of another one, what that remembered is lost with it.
func (d *sharding) foundedAnew() {
	if m := d.memory.replicated; m != nil {
		clear(m.last)
	}
}

// loaded: where nothing fails, what was stored for a shard is loaded by whoever has it next. Where nodes are pruned while one of their
// entities is removed, that may be added anew.
func (m *replicatedMemory) loaded(s *site, me owner, ids []string) {
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	m.unsure[me.Shard] = m.unsure[me.Shard] || m.open[me.Shard] > 0
	was, stored := m.last[me.Shard]
	same := sameIDs
	if m.d.c.data.plan.Pruned {
		same = contains
	}
	if stored && m.d.plan.Calm && !m.unsure[me.Shard] && !same(known, was) {
		s.violate("remembered-is-loaded", "of shard %d %v are loaded, and %v were stored", me.Shard, ids, was)
	}
	m.knows[me], m.last[me.Shard] = known, known
}

func sameIDs(a, b map[string]bool) bool { return len(a) == len(b) && contains(a, b) }

// contains reports whether all of b are in a.
func contains(a, b map[string]bool) bool {
	for id := range b {
		if !a[id] {
			return false
		}
	}
	return true
}

// wrong returns whether a set is not what runs, where nothing fails.
func (m *replicatedMemory) wrong(a *account) bool {
	known := m.last[a.shard]
	return m.d.plan.Calm && !m.unsure[a.shard] && m.open[a.shard] == 0 && known[a.id] != (len(a.running) > 0)
}
