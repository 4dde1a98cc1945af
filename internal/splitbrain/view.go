// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// View is what a node knows of its cluster at one time. Its slices are sorted by
// node and immutable: a resolver keeps them, and takes a slice that begins at the
// same place and is as long for the same.
type View struct {
	// Leader says whether this node is the leader.
	Leader bool
	// Members are all members, this node included.
	Members []identity.Member
	// Unreachable are the members that anybody finds unreachable or terminated, without this node.
	Unreachable []identity.Node
	// Reachability says who finds whom unreachable.
	Reachability membership.Reachability
	// Seen are those who have seen this view.
	Seen []identity.Node
}

func (View) input() {}

func (v *View) status(n identity.Node) identity.Status {
	i, found := slices.BinarySearchFunc(v.Members, n, func(m identity.Member, n identity.Node) int { return m.Node.Compare(n) })
	if !found {
		return identity.Removed
	}
	return v.Members[i].Status
}

// gone lists who must not be counted on: the unreachable members and those that are
// down, but for self.
func (v *View) gone(self identity.Node) []identity.Node {
	gone := make([]identity.Node, 0, len(v.Unreachable))
	for i := range v.Members {
		m := &v.Members[i]
		if m.Node != self && (m.Status == identity.Down || contains(v.Unreachable, m.Node)) {
			gone = append(gone, m.Node)
		}
	}
	return gone
}

// change is what came about between two views.
type change struct {
	// restart says that the time of stability begins anew.
	restart bool
	// reach counts the changes of reachability.
	reach int
	// removed says that a member is gone.
	removed bool
}

// diff compares two views.
func diff(self identity.Node, old, now *View) change {
	var c change
	if !same(old.Members, now.Members) {
		c.members(self, old.Members, now.Members)
	}
	if !same(old.Unreachable, now.Unreachable) {
		c.unreachable(old, now)
	}
	return c
}

func (c *change) members(self identity.Node, old, now []identity.Member) {
	for i, j := 0, 0; i < len(old) || j < len(now); {
		by := 0
		switch {
		case i == len(old):
			by = 1
		case j == len(now):
			by = -1
		default:
			by = old[i].Node.Compare(now[j].Node)
		}
		switch {
		case by < 0:
			c.removed = true
			i++
			continue
		case by > 0:
			c.status(self, &now[j], 0)
			j++
			continue
		}
		c.status(self, &now[j], old[i].Status)
		i, j = i+1, j+1
	}
}

// status notes that a member, which had the status before, now has its own.
func (c *change) status(self identity.Node, m *identity.Member, before identity.Status) {
	if m.Status == before {
		return
	}
	switch m.Status {
	case identity.Up, identity.Exiting:
		c.restart = true
	case identity.Down:
		c.restart = true
		if m.Node != self {
			c.reach++
		}
	case identity.Joining, identity.WeaklyUp, identity.Leaving, identity.Removed,
		identity.PreparingForShutdown, identity.ReadyForShutdown:
	}
}

// unreachable notes who can't be reached any more, and who can again. That a
// member which could not be reached is removed is neither.
func (c *change) unreachable(old, now *View) {
	for _, n := range now.Unreachable {
		if !contains(old.Unreachable, n) {
			c.reach++
			c.restart = true
		}
	}
	for _, n := range old.Unreachable {
		if !contains(now.Unreachable, n) && now.status(n) != identity.Removed {
			c.reach++
			c.restart = true
		}
	}
}

// same reports whether two slices are one, or both empty.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func contains(nodes []identity.Node, n identity.Node) bool {
	_, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	return found
}
