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

// enoughToLeave is the maximum time in which a coordinator moves the shards of a node. Some
// requests need a repetition.
const enoughToLeave = 6 * time.Second

// stale reports whether a node is paused, or has just resumed and still runs entities from before:
// other nodes may have taken them over.
func (s *shardNode) stale() bool {
	p := s.h.p
	return p.Paused() || p.Resumed() > s.since && s.d.w.Now() <= p.Resumed()+overlap
}

// oneEntity checks that an entity runs once. Only a node that was paused for long may run a second
// incarnation for one second.
func oneEntity(e *entity) {
	if e.ended || e.s.gone {
		return
	}
	for _, other := range e.a.running {
		switch {
		case other == e || other.s == e.s && other.killed: // the previous one is being killed
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

// oneOwner checks that one node hosts a shard.
func oneOwner(s *shardNode) {
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

// leavesInTime checks that, without failures, a coordinator moves all shards from a leaving node if
// another one stays.
func leavesInTime(s *shardNode) {
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

// endedRunsNothing checks that no entity of an ended shard runs.
func endedRunsNothing(s *shardNode, r shardcore.ShardRun) {
	for at := range s.entities {
		if at.ShardRun == r {
			s.violate("stopped-hosts-nothing", "shard %d has ended, and %s runs", r.Shard, at.entity)
		}
	}
}

// lowerTermsAreRefused checks that a region ignores coordinators of a lower term than it has seen,
// and reports this to them. It returns whether the region accepts the message.
func lowerTermsAreRefused(s *shardNode, from identity.Node, msg coordinator.Message, e *shardcore.Effects) bool {
	if s.m.Halted() || msg.Instance != s.m.Instance() && msg.Kind != coordinator.RegisterAgain {
		return false // it replies only that it has stopped, or nothing
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
		s.violate("terms-never-fall", "the region has seen term %d, and accepts %v of term %d", s.term, msg.Kind, msg.Term)
	}
	return false
}

// checkCoordinatorMessage checks that a message of a coordinator agrees with the stored state.
func (s *shardNode) checkCoordinatorMessage(to identity.Node, data []byte) {
	m, err := coordinator.DecodeMessage(data)
	s.countRepeatedMessage(to, &m)
	s.asks(m.Kind)
	c := s.m.LocalCoordinator()
	if err != nil || m.Kind.ToCoordinator() || c == nil { // it has ended after that
		return
	}
	state, rev := c.State()
	if !s.d.store.was(state, rev) || state.Term() != m.Term {
		s.violate("state-is-stored", "it sends %v in term %d, and its state of term %d at %d differs from the stored one", m.Kind, m.Term, state.Term(), rev)
	}
	if m.Kind == coordinator.Host {
		for _, n := range m.Shards {
			if home, _ := state.Home(n); home != to {
				s.violate("host-only-after-stored", "it requests %v to host shard %d, which is on %v", to, n, home)
			}
		}
	}
}

// was reports whether a state is the one after a number of events.
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

// movingShardsHaveNoHome checks that no region is sent the home of a shard that is being handed off.
func movingShardsHaveNoHome(s *shardNode, sends []shardcore.Outgoing) {
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
		case m.Kind == coordinator.BeginHandOff: // the hand-off begins after that
			told = slices.DeleteFunc(told, func(n shardcore.Shard) bool { return slices.Contains(m.Shards, n) })
		}
	}
	for _, n := range told {
		if _, found := slices.BinarySearch(moving, n); found {
			s.violate("moving-shards-have-no-home", "it sends the home of shard %d, which is being moved", n)
		}
	}
}
