// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

func node(name string) identity.Node { return identity.Node{Name: name, UID: 1} }

// clock generates a vector clock of a few nodes.
func clock(t *rapid.T, label string) membership.Clock {
	var c membership.Clock
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 8).Draw(t, label) {
		c = c.Add(node(name))
	}
	return c
}

// compare computes Compare by its definition.
func compare(a, b membership.Clock) membership.Order {
	less, more := false, false
	for _, name := range []string{"a", "b", "c", "d"} {
		x, y := a.Of(node(name)), b.Of(node(name))
		less, more = less || x < y, more || x > y
	}
	switch {
	case less && more:
		return membership.Concurrent
	case less:
		return membership.Before
	case more:
		return membership.After
	}
	return membership.Same
}

func TestClocks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := clock(t, "a"), clock(t, "b")
		if got, want := a.Compare(b), compare(a, b); got != want {
			t.Errorf("%v is %v relative to %v, want %v", a, got, b, want)
		}
		merged := a.Merge(b)
		if !slices.Equal(merged, b.Merge(a)) || !slices.IsSortedFunc(merged, func(x, y membership.Tick) int { return x.Node.Compare(y.Node) }) {
			t.Errorf("Merge = %v, which is not sorted or not commutative", merged)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			if got, want := merged.Of(node(name)), max(a.Of(node(name)), b.Of(node(name))); got != want {
				t.Errorf("the merged clock has %[2]d changes of %[1]s, want %[3]d", name, got, want)
			}
		}
		before := slices.Clone(a)
		if added := a.Add(node("b")); a.Compare(added) != membership.Before || added.Of(node("b")) != a.Of(node("b"))+1 || !slices.Equal(a, before) {
			t.Errorf("Add of b to %v = %v, want one more change of b", before, added)
		}
		if gone := a.Without(func(n identity.Node) bool { return n.Name == "c" }); gone.Of(node("c")) != 0 || gone.Of(node("a")) != a.Of(node("a")) || !slices.Equal(a, before) {
			t.Errorf("Without(c) of %v = %v", before, gone)
		}
	})
}
