// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"fmt"

	"github.com/refold-io/refold/identity"
)

// decide is the decision of the strategy.
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
			// Who leaves may be gone for the others. Whoever joins matters only to who is alone.
			sure := sit.count(census{role: s.Role})
			many := sit.count(census{role: s.Role, joining: !s.KeepLoneOldest})
			many.oldest = sure.oldest
			return s.keepOldest(sit, many)
		})
	case LeaseMajority:
		return KeepThisSide // if it gets the lease
	case KeepMajority, DownAll, Off, automatic:
	}
	return sit.unlessOtherwise(keepMajority(sit, counted), func() Decision {
		// As few as there may be on this side, as many as there may be on the other.
		few := sit.count(census{role: s.Role})
		many := sit.count(census{role: s.Role, joining: true, leaving: true})
		few.there = many.there
		// One who joins there may be up for the others, and the lowest of all.
		many = sit.count(census{role: s.Role, joining: true})
		if few.lowest != nil && !sit.isHere(many.lowest) {
			few.lowest = many.lowest
		}
		return keepMajority(sit, few)
	})
}

// unlessOtherwise returns the first decision, unless it keeps this side and the
// second doesn't: the other side may have come to that one.
func (s *situation) unlessOtherwise(first Decision, second func() Decision) Decision {
	if first == KeepThisSide && second() != KeepThisSide {
		return KeepNobody
	}
	return first
}

// outgrown reports whether a static quorum is no longer one: two sides could have it.
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

// isMinority reports whether this side lets the other one ask for the lease
// first.
func (s *Settings) isMinority(sit *situation) bool {
	c := sit.count(ordinary(s.Role))
	return c.lowest != nil && keepMajority(sit, c) == KeepOtherSide
}

// Decision is what a strategy says.
type Decision uint8

const (
	// KeepThisSide downs whom this side can't reach.
	KeepThisSide Decision = 1 + iota
	// KeepOtherSide downs this side, this node included.
	KeepOtherSide
	// KeepNobody downs all.
	KeepNobody
	// KeepConnected downs who is connected indirectly only, and whom a decision about the
	// rest names.
	KeepConnected
	// KeepUnconnected downs who is connected indirectly only, and this side: what
	// becomes of KeepConnected without a lease.
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

// reverse is what is done instead if the lease can't be had.
func (d Decision) reverse() Decision {
	if d == KeepConnected {
		return KeepUnconnected
	}
	return KeepOtherSide
}

// carry returns whom a decision downs, sorted by node, and the decision that is
// carried out: another one if the first can't be.
func (s *Settings) carry(sit *situation, d Decision) ([]identity.Node, Decision) {
	gone := func(n identity.Node) bool { return contains(sit.gone, n) }
	switch d {
	case KeepThisSide:
		return sit.downable(gone), d
	case KeepOtherSide:
		return sit.downable(func(n identity.Node) bool { return !gone(n) }), d
	case KeepConnected:
		indirect, more := sit.indirect(), s.besides(sit)
		return sit.downable(func(n identity.Node) bool { return contains(indirect, n) || contains(more, n) }), d
	case KeepUnconnected:
		indirect := sit.indirect()
		return sit.downable(func(n identity.Node) bool { return contains(indirect, n) || !gone(n) }), d
	case KeepNobody:
	}
	return sit.downable(func(identity.Node) bool { return true }), KeepNobody
}

// besides returns whom to down besides those who are connected indirectly only: what the strategy
// says about the two sides, if there is another one. Who goes on is a part of this side, and
// sides have no member in common, so no two of them go on.
func (s *Settings) besides(sit *situation) []identity.Node {
	sides := sit.sides()
	if len(sides.downable(func(n identity.Node) bool { return contains(sides.gone, n) })) == 0 {
		return nil
	}
	more, _ := s.carry(&sides, s.decide(&sides))
	return more
}
