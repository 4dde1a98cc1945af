// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"fmt"

	"github.com/refold-io/refold/identity"
)

// decide returns the decision of the strategy.
func (s *Settings) decide(sit *situation) Decision {
	counted := sit.count(ordinary(s.Role))
	switch {
	case s.Strategy == DownAll:
		return KeepNobody
	case s.outgrown(counted.all()):
		return KeepNobody
	case len(sit.indirect()) > 0:
		return KeepConnected
	}
	switch s.Strategy {
	case StaticQuorum:
		if counted.here >= s.QuorumSize {
			return KeepThisSide
		}
		return KeepOtherSide
	case KeepOldest:
		return sit.unlessOtherwise(s.keepOldest(sit, counted), func() Decision {
			// The other side may not count leaving members any more. Joining members matter only to
			// a lone oldest member.
			sure := sit.count(census{role: s.Role})
			many := sit.count(census{role: s.Role, joining: !s.KeepLoneOldest})
			many.oldest = sure.oldest
			return s.keepOldest(sit, many)
		})
	case LeaseMajority:
		return KeepThisSide // if it acquires the lease
	case KeepMajority, DownAll, Off, automatic:
	}
	return sit.unlessOtherwise(keepMajority(sit, counted), func() Decision {
		// The smallest possible number on this side, the largest on the other.
		few := sit.count(census{role: s.Role})
		many := sit.count(census{role: s.Role, joining: true, leaving: true})
		few.there = many.there
		// A joining member there may be Up for the others, and the lowest of all.
		many = sit.count(census{role: s.Role, joining: true})
		if few.lowest != nil && !sit.isHere(many.lowest) {
			few.lowest = many.lowest
		}
		return keepMajority(sit, few)
	})
}

// unlessOtherwise returns the first decision, or KeepNobody if the first keeps this side and the
// second does not: the other side may have come to the second.
func (s *situation) unlessOtherwise(first Decision, second func() Decision) Decision {
	if first == KeepThisSide && second() != KeepThisSide {
		return KeepNobody
	}
	return first
}

// outgrown reports whether two sides could both have the static quorum.
func (s *Settings) outgrown(members int) bool {
	return s.Strategy == StaticQuorum && members > 2*s.QuorumSize-1
}

func keepMajority(sit *situation, c count) Decision {
	switch {
	case c.lowest == nil:
		return KeepNobody
	case c.here > c.there, c.here == c.there && sit.isHere(c.lowest):
		return KeepThisSide
	}
	return KeepOtherSide
}

func (s *Settings) keepOldest(sit *situation, c count) Decision {
	switch {
	case c.oldest == nil:
		return KeepNobody
	case sit.isHere(c.oldest):
		if !s.KeepLoneOldest && c.here == 1 && c.there >= 2 {
			return KeepOtherSide
		}
		return KeepThisSide
	case !s.KeepLoneOldest && c.there == 1 && c.here >= 2:
		return KeepThisSide
	}
	return KeepOtherSide
}

// isMinority reports whether this side lets the other one request the lease first.
func (s *Settings) isMinority(sit *situation) bool {
	c := sit.count(ordinary(s.Role))
	return c.lowest != nil && keepMajority(sit, c) == KeepOtherSide
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
	// KeepConnected downs the indirectly connected members, and those that a decision about the two
	// sides downs.
	KeepConnected
	// KeepUnconnected downs the indirectly connected members and this side. It replaces
	// KeepConnected if the lease is not acquired.
	KeepUnconnected
)

func (d Decision) String() string {
	switch d {
	case KeepThisSide:
		return "down the unreachable"
	case KeepOtherSide:
		return "down the reachable"
	case KeepNobody:
		return "down all"
	case KeepConnected:
		return "down the indirectly connected"
	case KeepUnconnected:
		return "down the indirectly connected and the reachable"
	}
	return fmt.Sprintf("decision(%d)", uint8(d))
}

// reverse returns the decision without the lease.
func (d Decision) reverse() Decision {
	if d == KeepConnected {
		return KeepUnconnected
	}
	return KeepOtherSide
}

// nodesToDown returns the nodes that a decision downs, sorted, and the decision that is carried
// out, which differs if the first is not possible.
func (s *Settings) nodesToDown(sit *situation, d Decision) ([]identity.Node, Decision) {
	gone := func(n identity.Node) bool { return contains(sit.gone, n) }
	switch d {
	case KeepThisSide:
		return sit.downable(gone), d
	case KeepOtherSide:
		return sit.downable(func(n identity.Node) bool { return !gone(n) }), d
	case KeepConnected:
		indirect, more := sit.indirect(), s.extraDowned(sit)
		return sit.downable(func(n identity.Node) bool { return contains(indirect, n) || contains(more, n) }), d
	case KeepUnconnected:
		indirect := sit.indirect()
		return sit.downable(func(n identity.Node) bool { return contains(indirect, n) || !gone(n) }), d
	case KeepNobody:
	}
	return sit.downable(func(identity.Node) bool { return true }), KeepNobody
}

// extraDowned returns the members to down in addition to the indirectly connected ones: the result
// of the strategy for the two sides, if there is another side. The survivors are a part of this
// side, and sides are disjoint, so two groups cannot both survive.
func (s *Settings) extraDowned(sit *situation) []identity.Node {
	sides := sit.sides()
	if len(sides.downable(func(n identity.Node) bool { return contains(sides.gone, n) })) == 0 {
		return nil
	}
	more, _ := s.nodesToDown(&sides, s.decide(&sides))
	return more
}
