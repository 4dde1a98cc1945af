// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// enoughToLeave is how long it takes a coordinator at most to move the shards of a node: some of what is said is said twice.
const enoughToLeave = 6 * time.Second

// stale reports whether a node is paused, or has just gone on, and runs something from before: others may have given it
// up meanwhile.
func (s *site) stale() bool {
	p := s.h.p
	return p.Paused() || p.Resumed() > s.since && s.d.w.Now() <= p.Resumed()+overlap
}

// oneEntity: an entity lives once. Only a node that was paused for long may have another one for a second more.
func oneEntity(e *entity) {
	if e.ended || e.s.gone {
		return
	}
	for _, other := range e.a.running {
		switch {
		case other == e || other.s == e.s && other.killed: // the one before is being ended by force
		case other.s.stale() || e.s.stale():
			e.s.d.hit("sharding", "entity twice after a pause")
			e.s.d.w.After(overlap+time.Millisecond, func() {
				if !other.ended && !other.s.h.p.Paused() && !e.s.h.p.Paused() {
					oneEntity(e)
				}
			})
		default:
			e.s.violate("one-entity", "%s starts, and runs on %v", e.a.id, other.s.h.p.Node())
		}
	}
}

// oneOwner: a shard is hosted once.
func oneOwner(s *site) {
	if s.m.RouteVersion() == s.turn {
		return
	}
	s.turn = s.m.RouteVersion()
	hosted := s.m.Hosted()
	for _, n := range hosted {
		if _, before := slices.BinarySearch(s.hosted, n); before {
			continue
		}
		if !s.d.store.hosts[n][s.h.p.Node()] {
			s.violate("host-only-after-stored", "it hosts shard %d, which was never stored", n)
		}
		for _, other := range s.d.all {
			if _, too := slices.BinarySearch(other.hosted, n); !too || other == s || other.gone || other.stale() || s.stale() {
				continue
			}
			s.violate("one-owner", "it hosts shard %d, and so does %v", n, other.h.p.Node())
		}
	}
	s.hosted = hosted
}

// leavesInTime: when nothing fails, a coordinator takes all shards from a node that leaves, if there is another one that stays.
func leavesInTime(s *site) {
	d := s.d
	if !d.plan.Calm || len(s.m.Hosted()) == 0 || d.activeAt == 0 || d.w.Now() < d.activeAt+enoughToLeave {
		return
	}
	for _, other := range d.living() {
		if other != s && other.hosts() {
			s.violate("leaves-in-time", "it hosts %v after %v", s.m.Hosted(), maxLeaving)
		}
	}
}

// endedRunsNothing: of a shard that has ended no entity runs.
func endedRunsNothing(s *site, r shardcore.ShardRun) {
	for at := range s.entities {
		if at.ShardRun == r {
			s.violate("stopped-hosts-nothing", "shard %d has ended, and %s runs", r.Shard, at.entity)
		}
	}
}

// lowerTermsAreRefused: a region does nothing for a coordinator of a lower term than it has heard of, and tells it. It reports whether the
// region heeds the message.
func lowerTermsAreRefused(s *site, from identity.Node, msg coordinator.Message, e *shardcore.Effects) bool {
	if s.empty || msg.Instance != s.m.Instance() && msg.Kind != coordinator.RegisterAgain {
		return false // it only says that it has stopped, or nothing
	}
	if msg.Term >= s.term {
		s.term = msg.Term
		return true
	}
	s.d.hit("sharding", "lower term refused")
	fenced := false
	for i := range e.Send {
		if o := &e.Send[i]; o.Kind == shardcore.KindCoordinator {
			m, err := coordinator.DecodeMessage(o.Data)
			fenced = fenced || err == nil && m.Kind == coordinator.Fenced && o.To == from
		}
	}
	if !fenced || len(e.Actions) > 0 || len(e.Send) > 1 {
		s.violate("terms-never-fall", "it has heard of term %d, and heeds %v of term %d", s.term, msg.Kind, msg.Term)
	}
	return false
}

// says: what a coordinator says is stored.
func (s *site) says(to identity.Node, data []byte) {
	m, err := coordinator.DecodeMessage(data)
	s.saysAgain(to, &m)
	s.asks(m.Kind)
	c := s.m.LocalCoordinator()
	if err != nil || m.Kind.ToCoordinator() || c == nil { // it has ended, behind that
		return
	}
	state, rev := c.State()
	if !s.d.store.was(state, rev) || state.Term() != m.Term {
		s.violate("state-is-stored", "it says %v in term %d, and its state of term %d at %d is not what is stored", m.Kind, m.Term, state.Term(), rev)
	}
	if m.Kind == coordinator.Host {
		for _, n := range m.Shards {
			if home, _ := state.Home(n); home != to {
				s.violate("host-only-after-stored", "it tells %v to host shard %d, which is on %v", to, n, home)
			}
		}
	}
}

// was reports whether a state is the one after so many events.
func (s *stateStore) was(state coordinator.State, rev uint64) bool {
	if s.replicated != nil {
		return s.replicated.was(state, rev)
	}
	if rev > uint64(len(s.events)) {
		return false
	}
	if rev == uint64(len(s.events)) {
		return s.state.Equal(state)
	}
	then, err := coordinator.State{}.Apply(s.events[:rev]...)
	return err == nil && then.Equal(state)
}

// movingIsNotTold: nobody is told the home of a shard that is being moved.
func movingIsNotTold(s *site, sends []shardcore.Outgoing) {
	c := s.m.LocalCoordinator()
	if c == nil || len(sends) == 0 {
		return
	}
	moving := c.Moving()
	if len(moving) == 0 {
		return
	}
	var told []shardcore.Shard
	for i := range sends {
		if sends[i].Kind != shardcore.KindCoordinator {
			continue
		}
		m, err := coordinator.DecodeMessage(sends[i].Data)
		switch {
		case err != nil:
		case m.Kind == coordinator.Homes:
			for _, h := range m.Homes {
				told = append(told, h.Shards...)
			}
		case m.Kind == coordinator.BeginHandOff: // it begins behind that
			told = slices.DeleteFunc(told, func(n shardcore.Shard) bool { return slices.Contains(m.Shards, n) })
		}
	}
	for _, n := range told {
		if _, found := slices.BinarySearch(moving, n); found {
			s.violate("moving-is-not-told", "it tells the home of shard %d, which is being moved", n)
		}
	}
}
