// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// memory is the store of remembered entities, in the same journal. Who loads a shard is its owner from then on.
type memory struct {
	d          *sharding
	replicated *replicatedMemory // nil: the journal has it
	known      map[shards.Shard]bool
	entities   map[shards.Shard]map[string]bool
	owner      map[shards.Shard]owner
}

type owner struct {
	m *shards.Machine
	shards.Run
}

func newMemory(d *sharding) memory {
	m := memory{d: d, known: map[shards.Shard]bool{}, entities: map[shards.Shard]map[string]bool{}, owner: map[shards.Shard]owner{}}
	if d.plan.ReplicatedMemory {
		m.replicated = newReplicatedMemory(d)
	}
	return m
}

// shards returns the shards that are remembered.
func (m *memory) shards() []shards.Shard { return slices.Sorted(maps.Keys(m.known)) }

// add remembers shards.
func (m *memory) add(s *site, a coordinator.AddShards) {
	machine := s.m
	took, how := m.d.store.fate()
	m.d.w.After(took, func() {
		if how == lands || how == landsUnheard {
			for _, n := range a.Shards {
				m.known[n] = true
			}
		}
		s.after(0, func() { m.d.store.answer(s, machine, coordinator.ShardsAdded{ID: a.ID, Failed: how != lands}) })
	})
}

// ask loads or stores which entities of a shard run. An owner that was replaced can't store any more.
func (m *memory) ask(s *site, r shards.Remember) {
	me := owner{s.m, r.Run}
	answer := func(in shard.Input) {
		s.after(0, func() {
			if s.m == me.m {
				s.step(shards.Entities{Run: r.Run, Input: in})
			}
		})
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

func (m *memory) update(r shards.Remember) {
	if m.entities[r.Shard] == nil {
		m.entities[r.Shard] = map[string]bool{}
	}
	note(m.entities[r.Shard], r.Update)
}

// note takes note of an update.
func note(at map[string]bool, u *shard.Update) {
	for _, id := range u.Started {
		at[id] = true
	}
	for _, id := range u.Stopped {
		delete(at, id)
	}
}

// has reports whether an owner has stored that an entity runs.
func (m *memory) has(s *site, at shards.Run, id string) bool {
	if m.replicated != nil {
		return m.replicated.knows[owner{s.m, at}][id]
	}
	return m.entities[at.Shard][id]
}

// wrong reports whether an entity is remembered that does not run, or runs and is not remembered.
func (m *memory) wrong(a *account) bool {
	if m.replicated != nil {
		return m.replicated.wrong(a)
	}
	return m.entities[a.shard][a.id] != (len(a.running) > 0)
}

// rememberedBefore: a remembered entity starts only when that is stored.
func (s *site) rememberedBefore(a shards.Action) {
	if s.cfg.Region.Remember && !s.d.memory.has(s, a.Run, a.Entity) && !s.stale() {
		s.violate("remembered-before-it-starts", "%s starts, and is not remembered", a.Entity)
	}
}
