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
	for i, j := 0, 0; i < len(a) || j < len(b); {
		by := 0
		switch {
		case i == len(a):
			by = 1
		case j == len(b):
			by = -1
		case a[i] != b[j]:
			by = a[i].Node.Compare(b[j].Node)
		}
		var m *Member
		switch {
		case by < 0:
			m = a[i]
			i++
		case by > 0:
			m = b[j]
			j++
		default:
			m = later(a[i], b[j])
			i, j = i+1, j+1
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
	for len(a) > 0 || len(b) > 0 {
		by := 0
		switch {
		case len(a) == 0:
			by = 1
		case len(b) == 0:
			by = -1
		default:
			by = a[0].Node.Compare(b[0].Node)
		}
		switch {
		case by < 0:
			merged, a = append(merged, a[0]), a[1:]
		case by > 0:
			merged, b = append(merged, b[0]), b[1:]
		default:
			merged = append(merged, Tombstone{a[0].Node, max(a[0].At, b[0].At), max(a[0].Count, b[0].Count)})
			a, b = a[1:], b[1:]
		}
	}
	return merged
}

func mergeExtensions(a, b []Extension) []Extension {
	var merged []Extension
	for len(a) > 0 || len(b) > 0 {
		by := 0
		switch {
		case len(a) == 0:
			by = 1
		case len(b) == 0:
			by = -1
		default:
			by = cmp.Compare(a[0].Number, b[0].Number)
		}
		switch {
		case by < 0:
			merged, a = append(merged, a[0]), a[1:]
		case by > 0:
			merged, b = append(merged, b[0]), b[1:]
		default:
			greater := a[0]
			if bytes.Compare(b[0].Data, greater.Data) > 0 {
				greater = b[0]
			}
			merged, a, b = append(merged, greater), a[1:], b[1:]
		}
	}
	return merged
}
