// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// State is what a node knows of its cluster at one time. It never changes; its slices are sorted by node
// and must not be modified.
type State struct {
	// Self is the node.
	Self identity.Node
	// Joined says that it is a member, Connected that it hears itself through the network, Suspended that
	// it must not host anything, as others may do so soon.
	Joined, Connected, Suspended bool
	// Stopped says that it is no member any more and never will be, Err why.
	Stopped bool
	Err     error

	// Members are all members, this node included.
	Members []Member
	// Unreachable are the members that anybody finds unreachable, without this node.
	Unreachable []identity.Node
	// Seen are the members that are known to know just this.
	Seen []identity.Node
	// Leader is the member that acts for all, as this node finds. It is the zero node if there is none.
	Leader identity.Node
	// RoleLeaders are the first members with each role, sorted by role.
	RoleLeaders []RoleLeader

	tombstones   []membership.Tombstone
	reachability membership.Reachability
}

// Member returns a member.
func (s *State) Member(n identity.Node) (Member, bool) {
	i, found := slices.BinarySearchFunc(s.Members, n, func(m Member, n identity.Node) int { return m.Node.Compare(n) })
	if !found {
		return Member{}, false
	}
	return s.Members[i], true
}

// Named returns the member with a name. Of several incarnations, which are there for a short while only, it is the last one.
func (s *State) Named(name string) (Member, bool) {
	for i := range s.Members {
		if s.Members[i].Node.Name == name && (i+1 == len(s.Members) || s.Members[i+1].Node.Name != name) {
			return s.Members[i], true
		}
	}
	return Member{}, false
}

// Status returns that of a member, and Removed of a node that is none.
func (s *State) Status(n identity.Node) Status {
	if m, ok := s.Member(n); ok {
		return m.Status
	}
	return Removed
}

// Reachable reports whether nobody finds a node unreachable.
func (s *State) Reachable(n identity.Node) bool {
	_, found := slices.BinarySearchFunc(s.Unreachable, n, identity.Node.Compare)
	return !found
}

// Observation reports that a member finds another one unreachable.
type Observation struct {
	Observer, Subject identity.Node
	// Terminated reports that the subject is known to be dead, not only unreachable.
	Terminated bool
}

// Observations returns which members find which members unreachable, sorted by observer and subject.
func (s *State) Observations() []Observation {
	var all []Observation
	s.reachability.Bad(func(observer identity.Node, r membership.Record) {
		all = append(all, Observation{observer, r.Subject, r.Reach == membership.Terminated})
	})
	return all
}

// seenBy reports whether a member knows just this.
func (s *State) seenBy(n identity.Node) bool {
	_, found := slices.BinarySearchFunc(s.Seen, n, identity.Node.Compare)
	return found
}

// gone reports whether a node was a member and never will be again, or is known to be dead.
func (s *State) gone(n identity.Node) bool {
	if s.Stopped {
		return true
	}
	if _, ok := s.Member(n); ok {
		return s.reachability.Of(n, nil) == membership.Terminated
	}
	return slices.ContainsFunc(s.tombstones, func(t membership.Tombstone) bool { return t.Node == n })
}

// look returns the state as the machine has it.
func (n *Node) look() *State {
	m := n.machine
	v, shot := m.View(), m.Snapshot()
	return &State{
		Self: n.self, Joined: m.Member(), Connected: v.Connected, Suspended: m.Suspended(),
		Stopped: m.Stopped(), Err: n.left,
		Members: v.Members, Unreachable: v.Unreachable, reachability: v.Reachability, Seen: v.Seen,
		Leader: shot.Leader, RoleLeaders: convert(shot.RoleLeaders, func(r membership.RoleLeader) RoleLeader { return RoleLeader(r) }), tombstones: m.Gossip().Tombstones(),
	}
}

// State returns what the node knows now. It does not block.
func (n *Node) State() *State { return n.hub.current() }

// Members returns the members, sorted by node. The slice must not be modified.
func (n *Node) Members() []Member { return n.hub.current().Members }

// until waits for a state. The error is that of ctx.
func (n *Node) until(ctx context.Context, ok func(*State) bool) (*State, error) {
	for {
		s, changed := n.hub.next()
		if ok(s) {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}
