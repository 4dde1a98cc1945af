// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"bytes"
	"cmp"

	"github.com/refold-io/refold/identity"
)

// Merge returns what two nodes know together, for when neither knows all that
// the other does. It does not matter in which order states are merged, or how
// often. Nobody has seen the result.
//
// tick is true if the result holds changes of a node that was removed, which
// whoever removed it did not know of. They leave no trace in the clock, so that the
// result needs a tick of the node that merged, for no two contents to have the same clock.
//
// A member that is Down or Exiting on one side and unknown to the other stays, unless
// there is a tombstone: to drop it would make the result depend on the order of merges.
func (g Gossip) Merge(other Gossip) (merged Gossip, tick bool) {
	a, b := g.know(), other.know()
	m := &content{clock: a.clock.Merge(b.clock), tombstones: mergeTombstones(a.tombstones, b.tombstones), extensions: mergeExtensions(a.extensions, b.extensions)}
	for i := range m.tombstones {
		t := &m.tombstones[i]
		if count := m.clock.Of(t.Node); count > t.Count {
			t.Count, tick = count, true
		}
	}
	buried := func(n identity.Node) bool {
		_, found := findTombstone(m.tombstones, n)
		return found
	}
	if len(m.tombstones) > 0 {
		m.clock = m.clock.Without(buried)
	}
	var dropped bool
	if m.members, dropped = mergeMembers(a.members, b.members, m.tombstones); dropped {
		m.reach = a.reach.Merge(b.reach, func(n identity.Node) bool {
			_, member := findMember(m.members, n)
			return member
		})
	} else {
		m.reach = a.reach.Merge(b.reach, nil)
	}
	return Gossip{content: m}, tick
}

// mergeMembers returns the members of both sides without the buried ones, and
// whether there were such.
func mergeMembers(a, b []*Member, buried []Tombstone) (merged []*Member, dropped bool) {
	merged = make([]*Member, 0, max(len(a), len(b)))
	ofA, ofB, k := true, true, 0
	for x, y := range pairs(a, b, compareMembers) {
		var m *Member
		switch {
		case y == nil:
			m = *x
		case x == nil:
			m = *y
		default:
			m = laterMember(*x, *y)
		}
		for k < len(buried) && buried[k].Node.Compare(m.Node) < 0 {
			k++
		}
		if k < len(buried) && buried[k].Node == m.Node {
			dropped = true
			continue
		}
		at := len(merged)
		ofA = ofA && at < len(a) && a[at] == m
		ofB = ofB && at < len(b) && b[at] == m
		merged = append(merged, m)
	}
	switch { // share the memory of the side that it is
	case ofA && len(merged) == len(a):
		return a, dropped
	case ofB && len(merged) == len(b):
		return b, dropped
	}
	return merged, dropped
}

func mergeTombstones(a, b []Tombstone) []Tombstone {
	if len(a)+len(b) == 0 {
		return nil
	}
	merged := make([]Tombstone, 0, max(len(a), len(b)))
	for x, y := range pairs(a, b, func(a, b *Tombstone) int { return a.Node.Compare(b.Node) }) {
		switch {
		case y == nil:
			merged = append(merged, *x)
		case x == nil:
			merged = append(merged, *y)
		default:
			merged = append(merged, Tombstone{x.Node, max(x.At, y.At), max(x.Count, y.Count)})
		}
	}
	return merged
}

func mergeExtensions(a, b []Extension) (merged []Extension) {
	for x, y := range pairs(a, b, func(a, b *Extension) int { return cmp.Compare(a.Number, b.Number) }) {
		if x == nil || y != nil && bytes.Compare(y.Data, x.Data) > 0 {
			x = y
		}
		merged = append(merged, *x)
	}
	return merged
}
