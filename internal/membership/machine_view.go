// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "github.com/refold-io/refold/identity"

// View is what a node knows at one time, for those who decide by it. Its slices
// are sorted by node and immutable.
type View struct {
	Self identity.Node
	// Connected says that the node hears itself: otherwise it must decide nothing.
	Connected bool
	// Leader says that the node is the leader.
	Leader bool
	// Members are all members, this node included. It is the same slice as long as
	// none of them changes; so is Unreachable.
	Members []Member
	// Unreachable are the members that anybody finds unreachable or terminated, without this node.
	Unreachable []identity.Node
	// Reachability says who finds whom unreachable.
	Reachability Reachability
	// Seen are the members that have seen just this.
	Seen []identity.Node
}

// View returns what the node knows.
func (m *Machine) View() View {
	if members := m.gossip.Members(); !sameSlice(m.cache.valuesOf, members) {
		m.cache.valuesOf, m.cache.values = members, make([]Member, len(members))
		for i, o := range members {
			m.cache.values[i] = *o
		}
	}
	return View{
		Self: m.self, Connected: m.link.state == linkUp, Leader: m.phase == member && m.cache.leader == m.self,
		Members: m.cache.values, Unreachable: m.cache.others, Reachability: m.gossip.Reachability(), Seen: m.gossip.SeenBy(),
	}
}

// Snapshot is the state of the cluster as a subscriber to events sees it.
type Snapshot struct {
	Members []*Member
	// Unreachable are the members that can't be reached, without the node itself.
	Unreachable []*Member
	SeenBy      []identity.Node
	// Leader is the zero node if there is none.
	Leader      identity.Node
	RoleLeaders []RoleLeader
}

// RoleLeader is the first among the members with a role.
type RoleLeader struct {
	Role string
	Node identity.Node
}

// Snapshot returns the present state: all events that come out of later steps
// are changes of it.
func (m *Machine) Snapshot() Snapshot {
	s := Snapshot{Members: m.gossip.Members(), SeenBy: m.gossip.SeenBy(), Leader: m.cache.leader}
	m.cache.unreachable.each(func(i int) {
		if o := s.Members[i]; o.Node != m.self {
			s.Unreachable = append(s.Unreachable, o)
		}
	})
	for i, role := range m.cache.roles {
		if n := m.cache.roleLeaders[i]; !n.IsZero() {
			s.RoleLeaders = append(s.RoleLeaders, RoleLeader{role, n})
		}
	}
	return s
}

// Events returns what leads from an empty state to the present one.
func (s Snapshot) Events() []Event {
	var events []Event
	for _, o := range s.Members {
		events = append(events, Event{Kind: Became(o.Status), Member: o})
	}
	for _, o := range s.Unreachable {
		events = append(events, Event{Kind: MemberUnreachable, Member: o})
	}
	if !s.Leader.IsZero() {
		events = append(events, Event{Kind: LeaderChanged, Node: s.Leader})
	}
	for _, r := range s.RoleLeaders {
		events = append(events, Event{Kind: RoleLeaderChanged, Role: r.Role, Node: r.Node})
	}
	return events
}

// Suspended reports whether the node must not host anything now.
func (m *Machine) Suspended() bool { return m.link.suspended }

// Phi returns how much each monitored member is suspected.
func (m *Machine) Phi() map[identity.Node]float64 {
	all := make(map[identity.Node]float64, len(m.watch.monitors))
	for _, o := range m.watch.monitors {
		all[o.node] = o.detector.Phi(m.now)
	}
	return all
}
