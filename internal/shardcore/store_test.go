// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// store is the journal of coordinators, which refuses changes that expect another revision, and the
// store of remembered entities.
type store struct {
	w        *world
	events   []coordinator.Event
	fold     *coordinator.Fold
	known    map[shardcore.Shard]bool
	entities map[shardcore.Shard]map[string]bool
	owner    map[shardcore.Shard]owner // the last owner that loaded them
}

type owner struct {
	h *host
	shardcore.ShardRun
}

func (s *store) save(c coordinator.Change) (stored, fenced bool) {
	w := s.w
	if c.Rev != uint64(len(s.events)) {
		return false, c.Term < s.fold.State().Term()
	}
	for _, e := range c.Events {
		if err := s.fold.Apply(e); err != nil {
			w.fail("cannot apply a stored event: %v", err)
		}
		s.events = append(s.events, e)
		w.hit["stored: "+e.Kind.String()]++
	}
	if !s.fold.State().Equal(c.After) {
		w.fail("the stored state differs from the state of the coordinator")
	}
	return true, false
}

// do executes a save. Some fail, are stored late, or get no reply.
func (s *store) do(h *host, c coordinator.Save) {
	w := s.w
	answer := func(in coordinator.Input) {
		w.after(w.delay(), func() { h.step(shardcore.CoordinatorReply{Input: in}) })
	}
	failed := coordinator.SaveFailed{ID: c.ID}
	fault := 9
	if w.odds(6) {
		fault = w.rnd.IntN(4)
		w.hit["save fails"]++
	}
	switch fault {
	case 0:
		answer(failed)
	case 1:
		s.save(c.Change)
		answer(failed)
	case 2:
		answer(failed)
		w.after(w.delay()*20, func() { s.save(c.Change) })
	case 3: // no reply
		w.after(w.delay()*20, func() { s.save(c.Change) })
	default:
		w.after(w.delay(), func() {
			stored, fenced := s.save(c.Change)
			if stored {
				answer(coordinator.Saved{ID: c.ID})
				return
			}
			answer(coordinator.SaveFailed{ID: c.ID, Fenced: fenced})
		})
	}
}

func (s *store) load(h *host, id uint64) {
	w := s.w
	var in coordinator.Input = coordinator.LoadFailed{ID: id}
	if !w.odds(6) {
		in = coordinator.Loaded{ID: id, State: s.fold.State(), Rev: uint64(len(s.events)), Remembered: slices.Sorted(maps.Keys(s.known))}
	}
	w.after(w.delay(), func() { h.step(shardcore.CoordinatorReply{Input: in}) })
}

func (s *store) add(h *host, a coordinator.AddShards) {
	w := s.w
	failed := w.odds(6)
	w.after(w.delay(), func() {
		for _, n := range a.Shards {
			s.known[n] = true
		}
		h.step(shardcore.CoordinatorReply{Input: coordinator.ShardsAdded{ID: a.ID, Failed: failed}})
	})
}

// remember loads or stores which entities of a shard run. A replaced owner cannot store.
func (s *store) remember(h *host, r shardcore.RememberCall) {
	w := s.w
	answer := func(in shard.Input) {
		w.after(w.delay(), func() { h.step(shardcore.ShardInput{ShardRun: r.ShardRun, Input: in}) })
	}
	me := owner{h, r.ShardRun}
	w.after(w.delay(), func() {
		at := s.entities[r.Shard]
		if at == nil {
			at = map[string]bool{}
			s.entities[r.Shard] = at
		}
		switch {
		case r.Update == nil && w.odds(10):
			w.hit["load of entities fails"]++
			answer(shard.LoadFailed{})
		case r.Update == nil:
			s.owner[r.Shard] = me
			answer(shard.Loaded{Entities: slices.Sorted(maps.Keys(at))})
		case s.owner[r.Shard] != me || w.odds(20):
			w.hit["update of entities fails"]++
			answer(shard.UpdateFailed{ID: r.Update.ID})
		default:
			for _, id := range r.Update.Started {
				at[id] = true
			}
			for _, id := range r.Update.Stopped {
				delete(at, id)
			}
			answer(shard.Updated{ID: r.Update.ID})
		}
	})
}
