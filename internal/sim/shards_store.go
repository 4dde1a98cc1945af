// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// storeTimeout is the maximum duration of a call of a store.
const storeTimeout = 5 * time.Second

// Outcomes of a call of the journal.
type ending uint8

const (
	lands        ending = iota // stored, with a reply
	landsUnheard               // stored, possibly late, without a reply
	fails                      // not stored, with a reply
	vanishes                   // not stored, without a reply
)

// stateStore is a journal shared by all nodes with the state of coordinators.
type stateStore struct {
	d      *sharding
	events []coordinator.Event
	fold   *coordinator.Fold
	state  coordinator.State // after all events
	hosts  map[shardcore.Shard]map[identity.Node]bool

	broken bool // calls fail or get no reply
	slow   bool

	replicated *replicatedStore // nil if the state is in the journal
}

func newStateStore(d *sharding) *stateStore {
	s := &stateStore{d: d, fold: coordinator.NewFold(coordinator.State{}), hosts: map[shardcore.Shard]map[identity.Node]bool{}}
	if d.plan.Replicated {
		s.replicated = &replicatedStore{d: d, known: map[edition]coordinator.State{}, acked: map[edition]bool{}}
	}
	return s
}

func (s *stateStore) failing() bool { return s.broken && !s.d.quiet }

// storeTrouble makes the journal fail, or slow, for a while.
func (d *sharding) storeTrouble() {
	s := d.store
	if d.plan.Calm || s.broken || s.slow {
		return
	}
	s.broken = d.rand.IntN(2) == 0
	s.slow = !s.broken || d.rand.IntN(3) == 0
	took := d.between(time.Second, 12*time.Second)
	d.w.Logf("the journal fails %t, is slow %t, for %v", s.broken, s.slow, took)
	d.w.After(took, func() { s.broken, s.slow = false, false })
}

// storeDelay returns the duration of a call.
func (d *sharding) storeDelay() time.Duration {
	if d.store.slow && !d.quiet {
		return d.between(10*time.Millisecond, 3*time.Second)
	}
	return d.between(200*time.Microsecond, 12*time.Millisecond)
}

// fate returns the duration and the outcome of a call.
func (s *stateStore) fate() (time.Duration, ending) {
	d := s.d
	took := d.storeDelay()
	if !s.failing() || d.rand.IntN(3) == 0 {
		return took, lands
	}
	how := ending(d.rand.IntN(4)) //nolint:gosec // small
	d.hit("journal", []string{"lands", "no answer", "fails", "vanishes"}[how])
	if how == landsUnheard && d.rand.IntN(2) == 0 {
		took = d.between(0, 8*time.Second)
		d.hit("journal", "lands late")
	}
	return took, how
}

// append stores a change if it is based on the stored state.
func (s *stateStore) append(c coordinator.Change) (stored, fenced bool) {
	if c.Rev != uint64(len(s.events)) {
		return false, c.Term < s.state.Term()
	}
	for _, e := range c.Events {
		if err := s.fold.Apply(e); err != nil {
			s.d.c.violate("state-is-stored", identity.Node{}, "an impossible change is to be stored: %v", err)
			return false, false
		}
		s.d.hit("stored", e.Kind.String())
		for _, n := range e.Shards {
			if e.Kind != coordinator.HomesAllocated {
				continue
			}
			s.allocated(n, e.Node)
		}
	}
	s.events = append(s.events, c.Events...)
	s.state = s.fold.State()
	if !s.state.Equal(c.After) {
		s.d.c.violate("state-is-stored", s.state.Holder(), "after %d events the stored state differs from the coordinator's", len(s.events))
	}
	return true, false
}

// allocated records that a shard has had a home.
func (s *stateStore) allocated(n shardcore.Shard, to identity.Node) {
	if s.hosts[n] == nil {
		s.hosts[n] = map[identity.Node]bool{}
	}
	s.hosts[n][to] = true
}

// save executes a save of a coordinator.
func (s *stateStore) save(at *shardNode, c coordinator.Save) {
	if s.replicated != nil {
		s.replicated.save(at, c)
		return
	}
	took, how := s.fate()
	if how == lands || how == landsUnheard {
		s.d.w.After(took, func() {
			stored, fenced := s.append(c.Change)
			if how == landsUnheard {
				return
			}
			at.after(s.d.between(0, 5*time.Millisecond), func() {
				if stored {
					at.reply(coordinator.Saved{ID: c.ID})
				} else {
					s.d.hit("journal", "conflict")
					at.reply(coordinator.SaveFailed{ID: c.ID, Fenced: fenced})
				}
			})
		})
	}
	switch how {
	case fails:
		at.after(took, func() { at.reply(coordinator.SaveFailed{ID: c.ID}) })
	case landsUnheard, vanishes:
		at.after(storeTimeout, func() { at.reply(coordinator.SaveFailed{ID: c.ID}) })
	case lands:
	}
}

// load loads the state.
func (s *stateStore) load(at *shardNode, id uint64) {
	if s.replicated != nil {
		s.replicated.load(at, id)
		return
	}
	took, how := s.fate()
	if how != lands {
		at.after(took, func() { at.reply(coordinator.LoadFailed{ID: id}) })
		return
	}
	at.after(took, func() {
		in := coordinator.Loaded{ID: id, State: s.state, Rev: uint64(len(s.events)), Remembered: s.d.rememberStore.shards()}
		at.after(s.d.between(0, 5*time.Millisecond), func() { at.reply(in) })
	})
}
