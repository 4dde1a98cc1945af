// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

func (s *Settings) decide(p *partition) Decision {
	counted := p.count(countedBy(s.Role))
	switch {
	case s.Strategy == downing.DownAll:
		return KeepNobody
	case s.outgrown(counted.all()):
		return KeepNobody
	case len(p.indirect()) > 0:
		return KeepConnected
	}
	switch s.Strategy {
	case downing.StaticQuorum:
		if counted.here >= s.QuorumSize {
			return KeepThisSide
		}
		return KeepOtherSide
	case downing.KeepOldest:
		return keepIfConfirmed(s.keepOldest(p, counted), func() Decision {
			// The other side may no longer count leaving members. Joining members matter only to a
			// lone oldest member.
			sure := p.count(countRule{role: s.Role})
			many := p.count(countRule{role: s.Role, joining: !s.KeepLoneOldest})
			many.oldest = sure.oldest
			return s.keepOldest(p, many)
		})
	case downing.LeaseMajority:
		return KeepThisSide // if it acquires the lease
	case downing.KeepMajority, downing.DownAll, downing.Off, automatic:
	}
	return keepIfConfirmed(keepMajority(p, counted), func() Decision {
		// Count the smallest possible number on this side, and the largest on the other side.
		few := p.count(countRule{role: s.Role})
		many := p.count(countRule{role: s.Role, joining: true, leaving: true})
		few.there = many.there
		// A joining member of the other side may be Up in the view of that side, and may be the
		// lowest member of all.
		many = p.count(countRule{role: s.Role, joining: true})
		if few.lowest != nil && !p.isHere(many.lowest) {
			few.lowest = many.lowest
		}
		return keepMajority(p, few)
	})
}

// keepIfConfirmed returns the first decision, or KeepNobody if the first keeps this side and the
// second does not: the other side may have made the second decision.
func keepIfConfirmed(first Decision, second func() Decision) Decision {
	if first == KeepThisSide && second() != KeepThisSide {
		return KeepNobody
	}
	return first
}

// outgrown reports whether two sides could both have the static quorum.
func (s *Settings) outgrown(members int) bool {
	return s.Strategy == downing.StaticQuorum && members > 2*s.QuorumSize-1
}

func keepMajority(p *partition, c count) Decision {
	switch {
	case c.lowest == nil:
		return KeepNobody
	case c.here > c.there, c.here == c.there && p.isHere(c.lowest):
		return KeepThisSide
	}
	return KeepOtherSide
}

func (s *Settings) keepOldest(p *partition, c count) Decision {
	switch {
	case c.oldest == nil:
		return KeepNobody
	case p.isHere(c.oldest):
		if !s.KeepLoneOldest && c.here == 1 && c.there >= 2 {
			return KeepOtherSide
		}
		return KeepThisSide
	case !s.KeepLoneOldest && c.there == 1 && c.here >= 2:
		return KeepThisSide
	}
	return KeepOtherSide
}

// isMinority reports whether this side lets the other side request the lease first.
func (s *Settings) isMinority(p *partition) bool {
	c := p.count(countedBy(s.Role))
	return c.lowest != nil && keepMajority(p, c) == KeepOtherSide
}

// Decision is the decision of a strategy.
type Decision uint8

const (
	// KeepThisSide downs the nodes that this side cannot reach.
	KeepThisSide Decision = 1 + iota
	// KeepOtherSide downs this side, including this node.
	KeepOtherSide
	// KeepNobody downs all members.
	KeepNobody
	// KeepConnected downs the indirectly connected members, and the members that a decision about
	// the two sides downs.
	KeepConnected
	// KeepUnconnected downs the indirectly connected members and this side. It replaces
	// KeepConnected if the lease is not acquired.
	KeepUnconnected
)

func (d Decision) String() string {
	return enum.Name(d, "decision",
		"", "down the unreachable", "down the reachable", "down all", "down the indirectly connected",
		"down the indirectly connected and the reachable")
}

// reverse returns the decision that applies if the lease is not acquired.
func (d Decision) reverse() Decision {
	if d == KeepConnected {
		return KeepUnconnected
	}
	return KeepOtherSide
}

// nodesToDown returns the sorted nodes that a decision downs, and the decision that is carried out.
// An unknown decision is carried out as KeepNobody.
func (s *Settings) nodesToDown(p *partition, d Decision) ([]identity.Node, Decision) {
	gone := func(n identity.Node) bool { return contains(p.gone, n) }
	switch d {
	case KeepThisSide:
		return p.downable(gone), d
	case KeepOtherSide:
		return p.downable(func(n identity.Node) bool { return !gone(n) }), d
	case KeepConnected:
		indirect, more := p.indirect(), s.extraDowned(p)
		return p.downable(func(n identity.Node) bool { return contains(indirect, n) || contains(more, n) }), d
	case KeepUnconnected:
		indirect := p.indirect()
		return p.downable(func(n identity.Node) bool { return contains(indirect, n) || !gone(n) }), d
	case KeepNobody:
	}
	return p.downable(func(identity.Node) bool { return true }), KeepNobody
}

// extraDowned returns the members to down in addition to the indirectly connected members: the
// result of the strategy for the two sides, if there is another side. The survivors are a part of
// this side, and sides are disjoint, so two groups cannot both survive.
func (s *Settings) extraDowned(p *partition) []identity.Node {
	sides := p.sides()
	if len(sides.downable(func(n identity.Node) bool { return contains(sides.gone, n) })) == 0 {
		return nil
	}
	more, _ := s.nodesToDown(&sides, s.decide(&sides))
	return more
}
