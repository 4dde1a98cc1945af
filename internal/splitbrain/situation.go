// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// situation is what a strategy looks at. Its slices are sorted by node.
type situation struct {
	members []identity.Member
	gone    []identity.Node
	records []record
	seen    []identity.Node
}

// record says that one node finds another unreachable.
type record struct{ observer, subject identity.Node }

func newSituation(self identity.Node, v *View) situation {
	s := situation{members: v.Members, gone: v.gone(self), seen: v.Seen}
	var subjects []identity.Node
	v.Reachability.Bad(func(observer identity.Node, rec membership.Record) {
		if v.status(observer) != identity.Removed && v.status(rec.Subject) != identity.Removed {
			s.records = append(s.records, record{observer, rec.Subject})
			subjects = append(subjects, rec.Subject)
		}
	})
	slices.SortFunc(subjects, identity.Node.Compare)
	s.dismiss(slices.Compact(subjects))
	return s
}

// far reports whether a member is on the other side: it can't be reached, and has not seen the view.
// Who has seen it is on this side, whatever anybody finds.
func (s *situation) far(n identity.Node) bool { return contains(s.gone, n) && !contains(s.seen, n) }

// dismiss drops what the other side finds, if gossip came from there for longer than it went there: it finds
// this side unreachable, of course. Whom it has found so far is no less reachable here.
//
// When it decides it finds all of this side unreachable. If there is one here of whom nobody says so, the
// view that it decides by has not come here, so nobody here is counted there. Otherwise somebody may
// be, and what it finds is heeded. Members that are not up may have joined here only.
func (s *situation) dismiss(subjects []identity.Node) {
	known := ordinary("")
	if !slices.ContainsFunc(s.members, func(m identity.Member) bool { return known.includes(&m) && !contains(subjects, m.Node) }) {
		return
	}
	var found []identity.Node
	s.records = slices.DeleteFunc(s.records, func(r record) bool {
		if s.far(r.observer) {
			return true
		}
		found = append(found, r.subject)
		return false
	})
	slices.SortFunc(found, identity.Node.Compare)
	s.gone = slices.DeleteFunc(s.gone, func(n identity.Node) bool { return contains(s.seen, n) && !contains(found, n) })
}

// census says who of the members is looked at.
type census struct {
	role    string
	joining bool // those too that are not quite up
	leaving bool // those too that are about to go
}

// ordinary is who is counted unless there is a doubt.
func ordinary(role string) census { return census{role: role, leaving: true} }

func (c census) includes(m *identity.Member) bool {
	switch m.Status {
	case identity.Joining, identity.WeaklyUp:
		return c.joining && m.HasRole(c.role)
	case identity.Leaving:
		return c.leaving && m.HasRole(c.role)
	case identity.Up, identity.PreparingForShutdown, identity.ReadyForShutdown:
		return m.HasRole(c.role)
	case identity.Down, identity.Exiting, identity.Removed:
	}
	return false
}

// count is the result of a census.
type count struct {
	here, there int
	// lowest and oldest are the first ones by node and by age, nil if nobody is counted.
	lowest, oldest *identity.Member
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

// onlyLeaves reports whether nobody stays on this side, and somebody does on the other.
func (s *situation) onlyLeaves() bool {
	c := s.count(census{joining: true})
	return c.here == 0 && c.there > 0
}

// isHere reports whether a member is on this side.
func (s *situation) isHere(m *identity.Member) bool { return !contains(s.gone, m.Node) }

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

// sides returns the situation as two sides that don't hear each other, each of one mind.
func (s *situation) sides() situation {
	sides := situation{members: s.members, seen: s.seen}
	for _, n := range s.gone {
		if s.far(n) {
			sides.gone = append(sides.gone, n)
		}
	}
	return sides
}
