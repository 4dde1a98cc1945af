// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// store keeps the state of coordinators: as a journal, which refuses an append that expects another
// number, or as a register that also keeps the highest term. Whatever it stores has to follow on
// what was before.
type store struct {
	w        *world
	register bool
	events   []event // all that was stored
	fold     *coordinator.Fold
	state    coordinator.State
	known    map[shard]bool // remembered
}

func (s *store) rev() uint64 { return uint64(len(s.events)) }

// save stores a change if it is based on what is there.
func (s *store) save(c coordinator.Change) (stored, fenced bool) {
	if s.register {
		switch {
		case c.Term < s.state.Term():
			return false, true
		case c.Term == s.state.Term() && c.Rev+uint64(len(c.Events)) == s.rev() && c.After.Equal(s.state):
			return true, false // again
		}
	}
	if c.Rev != s.rev() {
		return false, false
	}
	if c.Term < s.state.Term() {
		s.w.t.Fatalf("seed %d, %v: a change of term %d is stored in term %d", s.w.seed, s.w.now, c.Term, s.state.Term())
	}
	for _, e := range c.Events {
		b := coordinator.AppendEvent(nil, e)
		decoded, err := coordinator.DecodeEvent(b)
		if err != nil {
			s.w.t.Fatal(err)
		}
		if err := s.fold.Apply(decoded); err != nil {
			s.w.t.Fatalf("seed %d, %v: %v", s.w.seed, s.w.now, err)
		}
		s.events = append(s.events, decoded)
		s.w.hit[e.Kind.String()]++
	}
	s.state = s.fold.State()
	if !s.state.Equal(c.After) {
		s.w.t.Fatalf("seed %d, %v: what is stored is not what the coordinator says", s.w.seed, s.w.now)
	}
	return true, false
}

// do carries out a save, with its faults.
func (s *store) do(b *boss, c coordinator.Save) {
	w := s.w
	answer := func(in coordinator.Input) { w.after(w.delay(), func() { b.step(in) }) }
	failed := coordinator.SaveFailed{ID: c.ID}
	switch fault := w.rnd.IntN(30); {
	case !w.faults || fault > 4:
		w.after(w.delay(), func() {
			stored, fenced := s.save(c.Change)
			if stored {
				answer(coordinator.Saved{ID: c.ID})
				return
			}
			w.hit["refused"]++
			answer(coordinator.SaveFailed{ID: c.ID, Fenced: fenced})
		})
	case fault == 0:
		w.hit["not stored"]++
		answer(failed)
	case fault == 1:
		w.hit["stored, answer lost"]++
		s.save(c.Change)
		answer(failed)
	case fault == 2:
		w.hit["lands late"]++
		answer(failed)
		w.after(w.delay()*20, func() { s.save(c.Change) })
	case fault == 3:
		w.hit["hangs, not stored"]++
	default:
		w.hit["hangs, lands late"]++
		w.after(w.delay()*50, func() { s.save(c.Change) })
	}
}

func (s *store) load(b *boss, id uint64) {
	w := s.w
	if w.faults && w.rnd.IntN(10) == 0 {
		w.hit["load failed"]++
		w.after(w.delay(), func() { b.step(coordinator.LoadFailed{ID: id}) })
		return
	}
	state, err := coordinator.DecodeState(coordinator.AppendState(nil, s.state))
	if err != nil {
		w.t.Fatal(err)
	}
	in := coordinator.Loaded{ID: id, State: state, Rev: s.rev()}
	for n := range shard(shards) {
		if s.known[n] {
			in.Remembered = append(in.Remembered, n)
		}
	}
	w.after(w.delay(), func() { b.step(in) })
}

func (s *store) add(b *boss, a coordinator.AddShards) {
	w := s.w
	fault := w.faults && w.rnd.IntN(8) == 0
	w.after(w.delay(), func() {
		if !fault || w.rnd.IntN(2) == 0 {
			for _, n := range a.Shards {
				s.known[n] = true
			}
		}
		b.step(coordinator.ShardsAdded{ID: a.ID, Failed: fault})
	})
}
