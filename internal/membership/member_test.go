// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"slices"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// listed returns members from texts such as a1 and b1: the name followed by the UID.
func listed(nodes ...string) []identity.Member {
	var members []identity.Member
	for _, n := range nodes {
		members = append(members, identity.Member{Node: identity.Node{Name: n[:1], UID: uint64(n[1] - '0')}})
	}
	return members
}

func TestFind(t *testing.T) {
	t.Parallel()
	members := listed("b1", "d2", "d4")
	for _, test := range []struct {
		node  string
		at    int
		found bool
	}{
		{"a1", 0, false},
		{"b1", 0, true},
		{"c1", 1, false},
		{"d1", 1, false},
		{"d2", 1, true},
		{"d3", 2, false},
		{"d4", 2, true},
		{"e1", 3, false},
	} {
		at, found := membership.Find(members, listed(test.node)[0].Node)
		if at != test.at || found != test.found {
			t.Errorf("Find(%s) = %d, %v, want %d, %v", test.node, at, found, test.at, test.found)
		}
	}
	if at, found := membership.Find(nil, members[0].Node); at != 0 || found {
		t.Errorf("Find in an empty list = %d, %v, want 0, false", at, found)
	}
}

// TestGone compares Gone with its definition, for all pairs of lists of four nodes, two of which
// are incarnations of one name.
func TestGone(t *testing.T) {
	t.Parallel()
	all := listed("a1", "b1", "b2", "c1")
	some := func(which int) []identity.Member {
		var members []identity.Member
		for i := range all {
			if which&(1<<i) != 0 {
				members = append(members, all[i])
			}
		}
		return members
	}
	for was := range 1 << len(all) {
		for is := range 1 << len(all) {
			before, now := some(was), some(is)
			var want []identity.Node
			for _, m := range before {
				if !slices.ContainsFunc(now, func(o identity.Member) bool { return o.Node == m.Node }) {
					want = append(want, m.Node)
				}
			}
			if got := membership.Gone(before, now); !slices.Equal(got, want) {
				t.Errorf("Gone(%v, %v) = %v, want %v", before, now, got, want)
			}
		}
	}
}
