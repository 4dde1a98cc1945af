// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/refold-io/refold/identity"
)

func (m *Machine) publishChanges(old Gossip, was cache) {
	next := m.gossip
	if !slices.Equal(old.Tombstones(), next.Tombstones()) {
		m.publish(Event{Kind: TombstonesChanged})
	}
	sameNodes := true
	if !SameSlice(old.Members(), next.Members()) {
		var changed []Event
		changed, sameNodes = m.memberEvents(old.Members(), next.Members())
		m.out.Events = append(m.out.Events, changed...)
	}
	sameReach := SameSlice(old.Reachability().Observers, next.Reachability().Observers)
	sameBad := sameNodes && sameReach
	if !sameBad {
		sameBad = m.reachabilityEvents(was.bad) && sameNodes
	}
	m.leaderEvents(was)
	if !slices.Equal(old.seen, next.seen) || !sameNodes {
		m.publish(Event{Kind: SeenChanged})
	}
	if !sameReach {
		m.publish(Event{Kind: ReachabilityChanged})
	}
	if !sameBad {
		m.remonitor()
	}
}

// memberEvents returns the events about members, and whether the set of nodes is unchanged.
func (m *Machine) memberEvents(old, next []*identity.Member) (events []Event, sameNodes bool) {
	var changed []Event
	sameNodes = true
	for before, now := range Pairs(old, next, compareMembers) {
		switch {
		case now == nil:
			sameNodes = false
			events = append(events, Event{Kind: MemberRemoved, Member: withStatus(*before, identity.Removed), Previous: (*before).Status})
			m.memberGone(*before)
		case before == nil:
			sameNodes = false
			changed = append(changed, m.memberIs(nil, *now))
		case (*before).Status != (*now).Status || (*before).UpNumber != (*now).UpNumber:
			changed = append(changed, m.memberIs(*before, *now))
		}
	}
	return append(events, changed...), sameNodes
}

func (m *Machine) memberIs(old, now *identity.Member) Event {
	m.count.Became[now.Status]++
	if now.Node == m.self && (old == nil || old.Status != now.Status) {
		switch now.Status {
		case identity.Up:
			if !m.wasUp {
				m.wasUp = true
				m.live(BecameUp)
			}
		case identity.Exiting:
			m.live(Exits)
		case identity.Down:
			m.log(Warn, "node was downed")
			m.live(Downed)
		case identity.Joining, identity.WeaklyUp, identity.Leaving, identity.Removed, identity.PreparingForShutdown, identity.ReadyForShutdown:
		}
	}
	return Event{Kind: Became(now.Status), Member: now}
}

// Became returns the event kind of a member's new status.
func Became(s identity.Status) EventKind {
	return [...]EventKind{
		identity.Joining: MemberJoined, identity.WeaklyUp: MemberWeaklyUp, identity.Up: MemberUp,
		identity.Leaving: MemberLeft, identity.Exiting: MemberExited, identity.Down: MemberDowned,
		identity.Removed: MemberRemoved, identity.PreparingForShutdown: MemberPreparing, identity.ReadyForShutdown: MemberReady,
	}[s]
}

func (m *Machine) memberGone(old *identity.Member) {
	m.count.Became[identity.Removed]++
	delete(m.confirmed, old.Node)
	if old.Status == identity.Down {
		m.exclude(old.Node)
		return
	}
	m.removed = append(m.removed, removedNode{old.Node, m.now + m.s.QuarantineRemovedAfter})
	m.soon(timerGrave, m.now+m.s.QuarantineRemovedAfter)
}

// reachabilityEvents publishes changes of the reachability of members. It returns true if there
// were no changes.
func (m *Machine) reachabilityEvents(before []identity.Node) bool {
	var bad, good []Event
	now := m.cache.bad
	for was, is := range Pairs(before, now, func(a, b *identity.Node) int { return a.Compare(*b) }) {
		if is == nil {
			if o := m.gossip.Member(*was); o != nil && o.Node != m.self {
				good = append(good, Event{Kind: MemberReachable, Member: o})
			}
		} else if was == nil && *is != m.self {
			bad = append(bad, Event{Kind: MemberUnreachable, Member: m.gossip.Member(*is)})
		}
	}
	m.out.Events = append(append(m.out.Events, bad...), good...)
	return slices.Equal(before, now)
}

func (m *Machine) leaderEvents(was cache) {
	if m.cache.leader != was.leader {
		m.publish(Event{Kind: LeaderChanged, Node: m.cache.leader})
	}
	for i, role := range m.cache.roles {
		var before identity.Node
		if j, found := slices.BinarySearch(was.roles, role); found {
			before = was.roleLeaders[j]
		}
		if now := m.cache.roleLeaders[i]; now != before {
			m.publish(Event{Kind: RoleLeaderChanged, Role: role, Node: now})
		}
	}
	for j, role := range was.roles {
		if _, found := slices.BinarySearch(m.cache.roles, role); !found && was.roleLeaders[j] != (identity.Node{}) {
			m.publish(Event{Kind: RoleLeaderChanged, Role: role})
		}
	}
}

// View is the state of the cluster as this node sees it. Its slices are sorted and immutable.
type View struct {
	Self identity.Node
	// Connected reports that the node receives its own heartbeats. A node that is not connected
	// must not decide.
	Connected bool
	// Leader reports that the node is the leader. LeaderNode is the leader, or the zero node if
	// there is none.
	Leader      bool
	LeaderNode  identity.Node
	RoleLeaders []RoleLeader
	// Members are all members, including this node. The slice remains the same until a member
	// changes. Unreachable behaves in the same way.
	Members []identity.Member
	// Unreachable are the members that at least one member finds unreachable or terminated, without
	// this node.
	Unreachable []identity.Node
	// Reachability has all observations.
	Reachability Reachability
	// Seen are the members that have seen this state.
	Seen []identity.Node
}

// RoleLeader is the leader of the members with a role.
type RoleLeader struct {
	Role string
	Node identity.Node
}

// View returns the current view. All events of later steps are changes of it.
func (m *Machine) View() View {
	if members := m.gossip.Members(); !SameSlice(m.cache.valuesOf, members) {
		m.cache.valuesOf, m.cache.values = members, make([]identity.Member, len(members))
		for i, o := range members {
			m.cache.values[i] = *o
		}
	}
	v := View{
		Self: m.self, Connected: m.link.state == linkUp, Leader: m.phase == member && m.cache.leader == m.self, LeaderNode: m.cache.leader,
		Members: m.cache.values, Unreachable: m.cache.others, Reachability: m.gossip.Reachability(), Seen: m.gossip.SeenBy(),
	}
	for i, role := range m.cache.roles {
		if n := m.cache.roleLeaders[i]; !n.IsZero() {
			v.RoleLeaders = append(v.RoleLeaders, RoleLeader{role, n})
		}
	}
	return v
}

// Suspended reports whether the node must not host.
func (m *Machine) Suspended() bool { return m.link.suspended }

// Phi returns the suspicion level of each monitored member.
func (m *Machine) Phi() map[identity.Node]float64 {
	all := make(map[identity.Node]float64, len(m.watch.monitors))
	for _, o := range m.watch.monitors {
		all[o.node] = o.detector.Phi(m.now)
	}
	return all
}
