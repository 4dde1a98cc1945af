// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Events yields a Snapshot and then each change of it, without a gap and without a duplicate, until ctx or the node
// ends. With kinds it yields, besides snapshots, events of these kinds only.
//
// The node never waits for a reader. One that is Config.MaxEvents behind gets another
// Snapshot in place of all that it has missed.
func (n *Node) Events(ctx context.Context, kinds ...EventKind) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		r := n.hub.subscribe(kinds)
		defer n.hub.unsubscribe(r)
		for {
			events, last := n.hub.take(r)
			for _, e := range events {
				if ctx.Err() != nil || !yield(e) {
					return
				}
			}
			switch {
			case len(events) > 0:
				continue
			case last:
				return
			}
			select {
			case <-r.news:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Changes does the same without snapshots: it yields the events that lead from a cluster without members to the
// present one, and then each change. A reader that is too slow gets those events that lead from what it knows to the
// present; what was in between is skipped.
func (n *Node) Changes(ctx context.Context, kinds ...EventKind) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var known tally
		wanted := func(e Event) bool { return len(kinds) == 0 || slices.Contains(kinds, e.Kind) }
		for e := range n.Events(ctx) {
			events := []Event{e}
			if e.Kind == Snapshot {
				events = known.catchUp(e.State)
			}
			for _, e := range events {
				known.note(e)
				if wanted(e) && !yield(e) {
					return
				}
			}
		}
	}
}

// tally is what a reader knows from the events that it got.
type tally struct {
	members     map[identity.Node]Member
	unreachable map[identity.Node]bool
	leader      identity.Node
	roleLeaders map[string]identity.Node
	cut, idle   bool // disconnected, suspended
}

// note takes in an event.
func (t *tally) note(e Event) {
	if t.members == nil {
		t.members, t.unreachable, t.roleLeaders = map[identity.Node]Member{}, map[identity.Node]bool{}, map[string]identity.Node{}
	}
	switch e.Kind {
	case MemberRemoved:
		delete(t.members, e.Member.Node)
		delete(t.unreachable, e.Member.Node)
	case MemberJoined, MemberWeaklyUp, MemberUp, MemberPreparing, MemberReady, MemberLeft, MemberExited, MemberDowned:
		t.members[e.Member.Node] = e.Member
	case MemberUnreachable:
		t.unreachable[e.Member.Node] = true
	case MemberReachable:
		delete(t.unreachable, e.Member.Node)
	case LeaderChanged:
		t.leader = e.Leader
	case RoleLeaderChanged:
		t.roleLeaders[e.Role] = e.Leader
	case Disconnected, Connected:
		t.cut = e.Kind == Disconnected
	case Suspended, Resumed:
		t.idle = e.Kind == Suspended
	case Snapshot, TombstonesChanged, ShuttingDown, SeenChanged, ReachabilityChanged:
	}
}

// catchUp returns the events that lead from what is known to a state.
func (t *tally) catchUp(s *State) (events []Event) {
	if s.Stopped && len(t.members) > 0 {
		events = append(events, Event{Kind: ShuttingDown})
	}
	var removed []Event
	for n, m := range t.members {
		if _, still := s.Member(n); !still {
			gone := m
			gone.Status = Removed
			removed = append(removed, Event{Kind: MemberRemoved, Member: gone, Previous: m.Status})
		}
	}
	slices.SortFunc(removed, func(a, b Event) int { return a.Member.Node.Compare(b.Member.Node) })
	events = append(events, removed...)
	for _, m := range s.Members {
		if old, known := t.members[m.Node]; !known || old.Status != m.Status || old.UpNumber != m.UpNumber {
			events = append(events, Event{Kind: kindOf(membership.Became(m.Status)), Member: m})
		}
	}
	events = append(events, t.reach(s)...)
	if t.leader != s.Leader {
		events = append(events, Event{Kind: LeaderChanged, Leader: s.Leader})
	}
	events = append(events, t.leaders(s)...)
	// Before the first event of the network a node counts as connected.
	if s.Joined && t.members != nil && t.cut == s.Connected {
		events = append(events, Event{Kind: cond(s.Connected, Connected, Disconnected)})
	}
	if t.idle != s.Suspended {
		events = append(events, Event{Kind: cond(s.Suspended, Suspended, Resumed)})
	}
	return events
}

func (t *tally) reach(s *State) (events []Event) {
	for _, n := range s.Unreachable {
		if m, ok := s.Member(n); ok && !t.unreachable[n] {
			events = append(events, Event{Kind: MemberUnreachable, Member: m})
		}
	}
	for _, m := range s.Members {
		if t.unreachable[m.Node] && s.Reachable(m.Node) {
			events = append(events, Event{Kind: MemberReachable, Member: m})
		}
	}
	return events
}

func (t *tally) leaders(s *State) (events []Event) {
	now := map[string]identity.Node{}
	for _, r := range s.RoleLeaders {
		if now[r.Role] = r.Node; t.roleLeaders[r.Role] != r.Node {
			events = append(events, Event{Kind: RoleLeaderChanged, Role: r.Role, Leader: r.Node})
		}
	}
	for role, n := range t.roleLeaders {
		if now[role].IsZero() && !n.IsZero() {
			events = append(events, Event{Kind: RoleLeaderChanged, Role: role})
		}
	}
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Role, b.Role) })
	return events
}

func cond[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}
