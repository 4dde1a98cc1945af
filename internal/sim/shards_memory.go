// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/sharding/coordinator"
	"github.com/refold-io/refold/sharding/shard"
)

// memory is the store of remembered entities, in the same journal. Who loads a shard is its owner from then on.
type memory struct {
	d        *sharding
	known    map[shards.Shard]bool
	entities map[shards.Shard]map[string]bool
	owner    map[shards.Shard]owner
}

type owner struct {
	m *shards.Machine
	shards.Run
}

func newMemory(d *sharding) memory {
	return memory{d: d, known: map[shards.Shard]bool{}, entities: map[shards.Shard]map[string]bool{}, owner: map[shards.Shard]owner{}}
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
	at := m.entities[r.Shard]
	if at == nil {
		at = map[string]bool{}
		m.entities[r.Shard] = at
	}
	for _, id := range r.Update.Started {
		at[id] = true
	}
	for _, id := range r.Update.Stopped {
		delete(at, id)
	}
}

// rememberedBefore: a remembered entity starts only when that is stored.
func (s *site) rememberedBefore(a shards.Action) {
	if s.cfg.Region.Remember && !s.d.memory.entities[a.Shard][a.Entity] && !s.stale() {
		s.violate("remembered-before-it-starts", "%s starts, and is not remembered", a.Entity)
	}
}
