// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package downing

import (
	"slices"

	"github.com/refold-io/refold/cluster/membership"
	"github.com/refold-io/refold/identity"
)

// situation is what a strategy looks at. Its slices are sorted by node.
type situation struct {
	members []membership.Member
	gone    []identity.Node
	records []record
	seen    []identity.Node
}

// record says that one node finds another unreachable.
type record struct{ observer, subject identity.Node }

func newSituation(self identity.Node, v *View) situation {
	s := situation{members: v.Members, gone: v.gone(self), seen: v.Seen}
	v.Reachability.Bad(func(observer identity.Node, rec membership.Record) {
		if v.status(observer) != membership.Removed && v.status(rec.Subject) != membership.Removed {
			s.records = append(s.records, record{observer, rec.Subject})
		}
	})
	return s
}

// census says who of the members is looked at.
type census struct {
	role    string
	joining bool // those too that are not quite up
	leaving bool // those too that are about to go
}

// ordinary is who is counted unless there is a doubt.
func ordinary(role string) census { return census{role: role, leaving: true} }

func (c census) includes(m *membership.Member) bool {
	switch m.Status {
	case membership.Joining, membership.WeaklyUp:
		return c.joining && m.HasRole(c.role)
	case membership.Leaving:
		return c.leaving && m.HasRole(c.role)
	case membership.Up, membership.PreparingForShutdown, membership.ReadyForShutdown:
		return m.HasRole(c.role)
	case membership.Down, membership.Exiting, membership.Removed:
	}
	return false
}

// count is the result of a census.
type count struct {
	here, there int
	// lowest and oldest are the first ones by node and by age, nil if nobody is counted.
	lowest, oldest *membership.Member
}

func (c *count) all() int { return c.here + c.there }

func (s *situation) count(who census) count {
	var c count
	for i := range s.members {
		m := &s.members[i]
		if !who.includes(m) {
			continue
		}
		if contains(s.gone, m.Node) {
			c.there++
		} else {
			c.here++
		}
		if c.lowest == nil {
			c.lowest = m
		}
		if c.oldest == nil || m.OlderThan(c.oldest) {
			c.oldest = m
		}
	}
	return c
}

// isHere reports whether a member is on this side.
func (s *situation) isHere(m *membership.Member) bool { return !contains(s.gone, m.Node) }

// downable lists the members that can be downed and for which f holds.
func (s *situation) downable(f func(identity.Node) bool) []identity.Node {
	var nodes []identity.Node
	for i := range s.members {
		m := &s.members[i]
		if (census{joining: true, leaving: true}).includes(m) && f(m.Node) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// indirect lists the nodes that are neither on this side nor clearly on another: who
// finds somebody unreachable and is found so too, and both ends of a record whose subject has
// seen the view all the same.
func (s *situation) indirect() []identity.Node {
	observers, subjects := make([]identity.Node, 0, len(s.records)), make([]identity.Node, 0, len(s.records))
	for _, r := range s.records {
		observers, subjects = append(observers, r.observer), append(subjects, r.subject)
	}
	slices.SortFunc(observers, identity.Node.Compare)
	var nodes []identity.Node
	for i, r := range s.records {
		if contains(observers, subjects[i]) {
			nodes = append(nodes, r.subject)
		}
		if contains(s.seen, r.subject) {
			nodes = append(nodes, r.observer, r.subject)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	return slices.Compact(nodes)
}

// without returns the situation as it would be if nodes had said nothing about
// each other.
func (s *situation) without(nodes []identity.Node) situation {
	left := situation{members: s.members, seen: s.seen}
	for _, r := range s.records {
		if !contains(nodes, r.observer) || !contains(nodes, r.subject) {
			left.records = append(left.records, r)
			left.gone = append(left.gone, r.subject)
		}
	}
	slices.SortFunc(left.gone, identity.Node.Compare)
	left.gone = slices.Compact(left.gone)
	return left
}
