// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// remembered is how long removed members are remembered.
const remembered = 15 * time.Minute

// see handles a new list of members. It handles removed members first, then the other changes, in
// the order of events.
func (m *Manager) see(now time.Duration, members Members, out *Effects) {
	if membership.SameSlice(members, m.members) {
		return
	}
	old := m.members
	m.members = members
	self := m.find(m.cfg.Self)
	if self == nil && membership.Lookup(old, m.cfg.Self) != nil || self != nil && self.Status == identity.Down {
		m.end(out)
		return
	}
	// The last preparing member may leave before this node is gone.
	m.preparing = m.preparing && onItsWayOut(self) || slices.ContainsFunc(members, func(o identity.Member) bool {
		return o.Status == identity.PreparingForShutdown || o.Status == identity.ReadyForShutdown
	})
	for was, is := range membership.Pairs(old, members, membership.CompareNodes) {
		if is == nil {
			m.memberRemoved(now, was, out)
		}
	}
	if m.state == Start {
		if self != nil && isCandidate(self) {
			m.begin(now, out)
		}
		return
	}
	for was, is := range membership.Pairs(old, members, membership.CompareNodes) {
		before := identity.Status(0)
		if was != nil {
			before = was.Status
		}
		if is != nil && (was == nil || before != is.Status || was.UpNumber != is.UpNumber) {
			m.reorder(func() { m.memberChanged(before, is) })
		}
	}
}

func (m *Manager) memberRemoved(now time.Duration, o *identity.Member, out *Effects) {
	if o.Node == m.cfg.Self {
		return
	}
	m.removals = append(m.removals, removal{member: *o, hasRole: o.HasRole(m.cfg.Role), at: now + m.cfg.RemovalMargin})
	if m.cfg.RemovalMargin == 0 {
		for _, n := range m.removals.due(now) {
			m.gone(now, n, out)
		}
	}
	if m.state == WasOldest && o.Node == m.newOldest && !m.exited {
		m.handOver(now, identity.Node{}, 0, out)
	}
	m.reorder(func() { m.drop(o.Node) })
}

func (m *Manager) memberChanged(before identity.Status, o *identity.Member) {
	switch {
	case o.Status == identity.Exiting:
		// This node's own exit is handled in the phase of its shutdown.
		if before != identity.Exiting && o.Node != m.cfg.Self {
			m.drop(o.Node)
		}
	case o.Status == identity.Down || before == identity.Exiting:
	case isCandidate(o) && o.HasRole(m.cfg.Role) && (o.Node != m.cfg.Self || !m.exited):
		m.drop(o.Node)
		at, _ := slices.BinarySearchFunc(m.order, o, func(a identity.Member, b *identity.Member) int { return membership.CompareAge(&a, b) })
		m.order = slices.Insert(m.order, at, *o)
	}
}

// reorder records whether f changes the oldest member.
func (m *Manager) reorder(f func()) {
	if m.state == Start {
		return
	}
	before := m.oldest()
	f()
	if after := m.oldest(); after != before {
		m.changes = append(m.changes, after)
	}
}

func (m *Manager) drop(n identity.Node) {
	m.order = slices.DeleteFunc(m.order, func(o identity.Member) bool { return o.Node == n })
}

func (m *Manager) oldest() identity.Node {
	if len(m.order) == 0 {
		return identity.Node{}
	}
	return m.order[0].Node
}

func (m *Manager) candidates() []identity.Member {
	var order []identity.Member
	for i := range m.members {
		if o := &m.members[i]; isCandidate(o) && o.HasRole(m.cfg.Role) && (o.Node != m.cfg.Self || !m.exited) {
			order = append(order, *o)
		}
	}
	slices.SortFunc(order, func(a, b identity.Member) int { return membership.CompareAge(&a, &b) })
	return order
}

func isCandidate(m *identity.Member) bool {
	return m.Status != identity.Joining && m.Status != identity.WeaklyUp && m.UpNumber != identity.NeverUp
}

func onItsWayOut(m *identity.Member) bool {
	return m == nil || m.Status == identity.Leaving || m.Status == identity.Exiting
}

func (m *Manager) find(n identity.Node) *identity.Member { return membership.Lookup(m.members, n) }

// waitsForRemoval reports whether an input matters in the final phase: the exit and the removal of
// this node, and a peer that has missed the end of the hand-over.
func (m *Manager) waitsForRemoval(in Input) bool {
	switch in.(type) {
	case SelfExiting:
		return true
	case Members, Received:
		return !m.peer.IsZero()
	}
	return false
}

type removals []removal // in the order of removal

type removal struct {
	member  identity.Member
	hasRole bool
	at      time.Duration // when it counts as gone
	gone    bool
}

// due returns the members that count as gone from now on.
func (r removals) due(now time.Duration) []identity.Node {
	var nodes []identity.Node
	for i := range r {
		if d := &r[i]; !d.gone && now >= d.at {
			d.gone = true
			nodes = append(nodes, d.member.Node)
		}
	}
	return nodes
}

func (r removals) gone(n identity.Node) bool {
	return slices.ContainsFunc(r, func(d removal) bool { return d.gone && d.member.Node == n })
}

// waiting returns the members older than a given one that do not count as gone yet, the last one
// first.
func (r removals) waiting(than *identity.Member) []identity.Node {
	var nodes []identity.Node
	for _, d := range slices.Backward(r) {
		if !d.gone && d.hasRole && isCandidate(&d.member) && d.member.OlderThan(than) {
			nodes = append(nodes, d.member.Node)
		}
	}
	return nodes
}
