// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"slices"

	"github.com/refold-io/refold/identity"
)

// position is where a node stands on the ring: its UIDs are random, so that
// neighbours on it are seldom neighbours elsewhere.
func position(n identity.Node) int32 { return int32(uint32(n.UID ^ n.UID>>32)) } //nolint:gosec // all 32 bits are meant

// around orders nodes by how far they stand behind self, clockwise.
func around(self identity.Node) func(a, b *Member) int {
	ring := func(a, b identity.Node) int {
		return cmp.Or(cmp.Compare(position(a), position(b)), a.Compare(b))
	}
	return func(a, b *Member) int {
		wrappedA, wrappedB := ring(a.Node, self) < 0, ring(b.Node, self) < 0
		switch {
		case wrappedA == wrappedB:
			return ring(a.Node, b.Node)
		case wrappedA:
			return 1
		}
		return -1
	}
}

// Monitored returns whom self is to monitor, sorted: everybody else if there are
// no more than count, otherwise the next count reachable members behind it on the
// ring. Those that are unreachable and stand between them are monitored too, as
// long as there are less than count.
func (g Gossip) Monitored(self identity.Node, count int) []identity.Node {
	return monitored(g.Members(), g.unreachable(nil), self, count)
}

func monitored(members []*Member, unreachable bitmap, self identity.Node, count int) []identity.Node {
	if _, member := findMember(members, self); !member || count <= 0 {
		return nil
	}
	if count >= len(members)-1 {
		all := make([]identity.Node, 0, len(members)-1)
		for _, m := range members {
			if m.Node != self {
				all = append(all, m.Node)
			}
		}
		return all
	}
	// The nearest of both kinds are enough, and found without sorting all.
	order := around(self)
	good, bad := make([]*Member, 0, count+1), make([]*Member, 0, count+1)
	for i, m := range members {
		if m.Node == self {
			continue
		}
		kind := &good
		if unreachable.has(i) {
			kind = &bad
		}
		if len(*kind) == count && order(m, (*kind)[count-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(*kind, m, order)
		*kind = slices.Insert(*kind, at, m)
		*kind = (*kind)[:min(count, len(*kind))]
	}
	chosen, reachable := make([]identity.Node, 0, 2*count), 0
	for reachable < count && len(good)+len(bad) > 0 {
		switch {
		case len(good) == 0 || len(bad) > 0 && order(bad[0], good[0]) < 0:
			if len(chosen) < count {
				chosen = append(chosen, bad[0].Node)
			}
			bad = bad[1:]
		default:
			chosen = append(chosen, good[0].Node)
			good = good[1:]
			reachable++
		}
	}
	slices.SortFunc(chosen, identity.Node.Compare)
	return chosen
}
