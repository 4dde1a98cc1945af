// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// replicatedEntities stores remembered entities in replicated data, in a set for each shard. A
// previous owner is not prevented from changing it. It is lost with its nodes, so that everything
// is found again only without failures.
type replicatedEntities struct {
	d      *sharding
	knows  map[owner]map[string]bool           // entities that each owner has loaded or stored
	last   map[shardcore.Shard]map[string]bool // entities of the last owner
	unsure map[shardcore.Shard]bool            // an update without a reply preceded its load
	open   map[shardcore.Shard]int             // updates without a reply
	turns  map[identity.Node]map[shardcore.Shard][]func()
}

func newReplicatedMemory(d *sharding) *replicatedEntities {
	return &replicatedEntities{
		d: d, knows: map[owner]map[string]bool{}, last: map[shardcore.Shard]map[string]bool{}, unsure: map[shardcore.Shard]bool{}, open: map[shardcore.Shard]int{},
		turns: map[identity.Node]map[shardcore.Shard][]func(){},
	}
}

func memoryKey(n shardcore.Shard) string { return fmt.Sprintf("shard-account||%d", n) }

// ask loads or stores which entities of a shard run.
func (m *replicatedEntities) ask(s *shardNode, r shardcore.RememberCall, me owner, answer func(shard.Input)) {
	if r.Update != nil {
		m.open[r.Shard]++
	}
	m.inTurn(s, r.Shard, func(e *storeCall) {
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

func (m *replicatedEntities) load(e *storeCall, n shardcore.Shard) ([]string, error) {
	set, err := read[crdt.ORSet[string]](e, memoryKey(n), replication.Level{Kind: replication.Majority}, false)
	if err != nil {
		return nil, err
	}
	return set.Elements()
}

// inTurn makes a call after the earlier calls of the node for the same shard.
func (m *replicatedEntities) inTurn(s *shardNode, n shardcore.Shard, call func(e *storeCall)) {
	turns := m.turns[s.h.p.Node()]
	if turns == nil {
		turns = map[shardcore.Shard][]func(){}
		m.turns[s.h.p.Node()] = turns
	}
	turns[n] = append(turns[n], func() {
		s.startStoreCall(func(e *storeCall) {
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

// foundedAgain records that a cluster is founded. If no node of an earlier one is left, its
// remembered entities are lost.
func (d *sharding) foundedAgain() {
	if m := d.rememberStore.replicated; m != nil {
		clear(m.last)
	}
}

// loaded checks that, without failures, the stored entities of a shard are loaded by its next
// owner. Entities that are removed while nodes are pruned may be added again.
func (m *replicatedEntities) loaded(s *shardNode, me owner, ids []string) {
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

// contains reports whether a includes all of b.
func contains(a, b map[string]bool) bool {
	for id := range b {
		if !a[id] {
			return false
		}
	}
	return true
}

// wrong returns whether a set differs from the running entities, without failures.
func (m *replicatedEntities) wrong(a *account) bool {
	known := m.last[a.shard]
	return m.d.plan.Calm && !m.unsure[a.shard] && m.open[a.shard] == 0 && known[a.id] != (len(a.running) > 0)
}

// rememberedEntities is the store of remembered entities, in the same journal. The last node that
// loads a shard owns it.
type rememberedEntities struct {
	d          *sharding
	replicated *replicatedEntities // nil if the journal stores them
	known      map[shardcore.Shard]bool
	entities   map[shardcore.Shard]map[string]bool
	owner      map[shardcore.Shard]owner
}

type owner struct {
	s *shardNode
	shardcore.ShardRun
}

func newMemory(d *sharding) rememberedEntities {
	m := rememberedEntities{d: d, known: map[shardcore.Shard]bool{}, entities: map[shardcore.Shard]map[string]bool{}, owner: map[shardcore.Shard]owner{}}
	if d.plan.ReplicatedMemory {
		m.replicated = newReplicatedMemory(d)
	}
	return m
}

// shards returns the remembered shards.
func (m *rememberedEntities) shards() []shardcore.Shard { return slices.Sorted(maps.Keys(m.known)) }

// add adds shards.
func (m *rememberedEntities) add(s *shardNode, a coordinator.AddShards) {
	took, how := m.d.store.fate()
	m.d.w.After(took, func() {
		if how == lands || how == landsUnheard {
			for _, n := range a.Shards {
				m.known[n] = true
			}
		}
		s.after(0, func() { s.reply(coordinator.ShardsAdded{ID: a.ID, Failed: how != lands}) })
	})
}

// ask loads or updates the remembered entities of a shard. A replaced owner cannot update them.
func (m *rememberedEntities) ask(s *shardNode, r shardcore.RememberCall) {
	me := owner{s, r.ShardRun}
	answer := func(in shard.Input) {
		s.after(0, func() { s.step(shardcore.ShardInput{ShardRun: r.ShardRun, Input: in}) })
	}
	if m.replicated != nil {
		m.replicated.ask(s, r, me, answer)
		return
	}
	took, how := m.d.store.fate()
	if r.Update == nil {
		s.after(took, func() {
			if how != lands {
				m.d.hit("memory", "load failed")
				answer(shard.LoadFailed{})
				return
			}
			m.d.hit("memory", "loaded")
			m.owner[r.Shard] = me
			answer(shard.Loaded{Entities: slices.Sorted(maps.Keys(m.entities[r.Shard]))})
		})
		return
	}
	m.d.w.After(took, func() {
		fenced := m.owner[r.Shard] != me
		if fenced {
			m.d.hit("memory", "fenced")
		}
		if (how == lands || how == landsUnheard) && !fenced {
			m.update(r)
		}
		if how == lands && !fenced {
			m.d.hit("memory", "updated")
			answer(shard.Updated{ID: r.Update.ID})
		} else {
			m.d.hit("memory", "update failed")
			answer(shard.UpdateFailed{ID: r.Update.ID})
		}
	})
}

func (m *rememberedEntities) update(r shardcore.RememberCall) {
	if m.entities[r.Shard] == nil {
		m.entities[r.Shard] = map[string]bool{}
	}
	note(m.entities[r.Shard], r.Update)
}

// note records an update.
func note(at map[string]bool, u *shard.Update) {
	for _, id := range u.Started {
		at[id] = true
	}
	for _, id := range u.Stopped {
		delete(at, id)
	}
}

// has reports whether an owner has stored that an entity runs.
func (m *rememberedEntities) has(s *shardNode, at shardcore.ShardRun, id string) bool {
	if m.replicated != nil {
		return m.replicated.knows[owner{s, at}][id]
	}
	return m.entities[at.Shard][id]
}

// wrong reports whether an entity is remembered and does not run, or the reverse.
func (m *rememberedEntities) wrong(a *account) bool {
	if m.replicated != nil {
		return m.replicated.wrong(a)
	}
	return m.entities[a.shard][a.id] != (len(a.running) > 0)
}

// rememberedBefore checks that a remembered entity starts only after that is stored.
func (s *shardNode) rememberedBefore(a shardcore.Action) {
	if s.cfg.Region.Remember && !s.d.rememberStore.has(s, a.ShardRun, a.Entity) && !s.stale() {
		s.violate("remembered-before-it-starts", "%s starts, and is not remembered", a.Entity)
	}
}
