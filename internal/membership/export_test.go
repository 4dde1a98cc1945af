// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "github.com/refold-io/refold/identity"

// DifferentViewOf is the probability with which one of n members prefers a member that has not seen
// the last change.
func (s Settings) DifferentViewOf(n int) float64 {
	s = s.withDefaults()
	return s.differentView(n)
}

// Duplicates exports duplicates.
func Duplicates(members []*identity.Member) []*identity.Member { return duplicates(members) }

// WithDefaults exports withDefaults.
func (s Settings) WithDefaults() Settings { return s.withDefaults() }

// Extensions returns the fields of newer versions. They must not be modified.
func (g Gossip) Extensions() []Extension { return g.state().extensions }

// Unseen returns the gossip as if no member had seen it.
func (g Gossip) Unseen() Gossip {
	g.seen = nil
	return g
}

// Unreachable returns the members other than self that at least one observer finds unreachable or
// terminated, sorted.
func (g Gossip) Unreachable(self identity.Node) []*identity.Member {
	var found []*identity.Member
	g.unreachable(nil).each(func(i int) {
		if g.members[i].Node != self {
			found = append(found, g.members[i])
		}
	})
	return found
}

// Leader returns the leader in the view of self. Only members with the role that are reachable or
// self can lead. The leader is the first member that is Up, Leaving or about to shut down. If there
// is no such member, the leader is the first member with the best other status, except Down. If no
// member can lead, the result is the zero node.
func (g Gossip) Leader(self identity.Node, role string) identity.Node {
	return leader(g.Members(), g.unreachable(nil), self, func(m *identity.Member) bool { return m.HasRole(role) })
}

// Monitored returns the nodes that self monitors, sorted. If there are at most count other members,
// self monitors all of them. If there are more, self monitors the next count reachable members on
// the ring. Unreachable members between these members are monitored too, up to count.
func (g Gossip) Monitored(self identity.Node, count int) []identity.Node {
	return monitored(g.Members(), g.unreachable(nil), self, count)
}

// SeenOf returns the set of members that have seen a gossip.
func SeenOf(g Gossip) Seen {
	return Seen{Version: g.Clock().Digest(), seen: encodeBitmap(g.seen)}
}

// Events returns the events that lead from an empty state to this one.
func (v View) Events() []Event {
	var events []Event
	for i := range v.Members {
		events = append(events, Event{Kind: Became(v.Members[i].Status), Member: &v.Members[i]})
	}
	for _, n := range v.Unreachable {
		events = append(events, Event{Kind: MemberUnreachable, Member: Lookup(v.Members, n)})
	}
	if !v.LeaderNode.IsZero() {
		events = append(events, Event{Kind: LeaderChanged, Node: v.LeaderNode})
	}
	for _, r := range v.RoleLeaders {
		events = append(events, Event{Kind: RoleLeaderChanged, Role: r.Role, Node: r.Node})
	}
	return events
}

// Forge returns a gossip with another clock, observations and tombstones.
func Forge(g Gossip, clock Clock, reach Reachability, tombstones []Tombstone) Gossip {
	return Gossip{content: &content{g.Members(), reach, clock, tombstones, nil}, seen: g.seen}
}
