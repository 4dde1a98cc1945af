// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"fmt"

	"github.com/refold-io/refold/identity"
)

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
