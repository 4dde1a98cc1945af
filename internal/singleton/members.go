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

// updateMembers handles a new list of members. It handles removed members first and then the other
// changes, in the order of cluster events.
func (m *Manager) updateMembers(now time.Duration, members Members, out *Effects) {
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
	// This node may be removed after all other preparing members.
	m.preparing = m.preparing && isLeaving(self) || slices.ContainsFunc(members, func(o identity.Member) bool {
		return o.Status == identity.PreparingForShutdown || o.Status == identity.ReadyForShutdown
	})
	margin := m.cfg.RemovalMargin(max(len(old), len(members)))
	for was, is := range membership.Pairs(old, members, membership.CompareNodes) {
		if is == nil {
			m.memberRemoved(now, was, margin, out)
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

func (m *Manager) memberRemoved(now time.Duration, o *identity.Member, margin time.Duration, out *Effects) {
	if o.Node == m.cfg.Self {
		return
	}
	m.removals = append(m.removals, removal{member: *o, hasRole: o.HasRole(m.cfg.Role), at: now + margin})
	if margin == 0 {
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

// reorder calls f, and records the new oldest member if f changes it.
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

// isLeaving reports whether a member is leaving or was removed; nil means removed.
func isLeaving(m *identity.Member) bool {
	return m == nil || m.Status == identity.Leaving || m.Status == identity.Exiting
}

func (m *Manager) find(n identity.Node) *identity.Member { return membership.Lookup(m.members, n) }

// isHandledAtEnd reports whether the manager still handles an input in the state End. It handles
// the exit of this node. While a peer may have missed the end of the hand-over, it also handles
// changes of members and messages.
func (m *Manager) isHandledAtEnd(in Input) bool {
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
	at      time.Duration // when the member counts as gone
	gone    bool
}

// due marks the members whose removal margin has passed as gone, and returns them.
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

// waiting returns the removed candidates that are older than a member and do not count as gone yet,
// the most recently removed one first.
func (r removals) waiting(member *identity.Member) []identity.Node {
	var nodes []identity.Node
	for _, d := range slices.Backward(r) {
		if !d.gone && d.hasRole && isCandidate(&d.member) && d.member.OlderThan(member) {
			nodes = append(nodes, d.member.Node)
		}
	}
	return nodes
}
