// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

func TestGCounter(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	var c crdt.GCounter
	if d := changes(c.Add(a, 0)); c.Value() != 0 || !d.IsZero() {
		t.Error("adding 0 produced a delta")
	}
	atA, atB := c.Add(a, 3).Add(a, 4), c.Add(b, 5)
	if m := must(atA.Merge(atB)); m.Value() != 12 || must(m.Merge(atA)).Value() != 12 {
		t.Errorf("merging 7 and 5 gave %d, want 12 and no change by a second merge", m.Value())
	}
	if _, err := c.AddBig(a, big.NewInt(-1)); err == nil {
		t.Error("AddBig accepted a negative number")
	}
	if _, err := c.AddBig(a, new(big.Int).Lsh(big.NewInt(1), 1000)); !errors.Is(err, crdt.ErrLimit) {
		t.Errorf("adding 2^1000: got error %v, want ErrLimit", err)
	}
	large := new(big.Int).Lsh(big.NewInt(1), 100)
	huge := must(c.Add(a, math.MaxUint64).Add(a, 1).AddBig(b, large))
	want := new(big.Int).Add(large, new(big.Int).Lsh(big.NewInt(1), 64))
	if huge.Big().Cmp(want) != 0 || huge.Value() != math.MaxUint64 {
		t.Errorf("got the sum %v, %d, want the exact sum and the maximum uint64", huge.Big(), huge.Value())
	}
	if left := must(huge.Cleanup(a.Node())); left.Big().Cmp(large) != 0 {
		t.Errorf("after Cleanup of a: got %v, want %v", left.Big(), large)
	}
	large.SetInt64(0)
	if huge.Big().Cmp(want) != 0 {
		t.Error("the value changed with the caller's big.Int")
	}
}

// A delta contains the total count of its node. Deltas may therefore arrive twice and in any order.
func TestCounterDeltas(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	one := crdt.PNCounter{}.Add(a, 10).Add(b, 1).ResetDelta()
	two := one.Add(a, -3)
	three := two.ResetDelta().Add(a, 5)
	d2, d3 := changes(two), changes(three)
	if d2.NeedsCausal() || d2.Ops() != 0 || d2.Type() != "PNCounter" {
		t.Errorf("got a delta of %s, causal %t, %d operations, want a delta of PNCounter that is not causal, with 0 operations", d2.Type(), d2.NeedsCausal(), d2.Ops())
	}
	var c crdt.PNCounter
	for _, d := range []crdt.Delta{d3, d2, d3} {
		c = must(c.MergeDelta(d))
	}
	if c.Value() != 12 { // 15 up and 3 down: the later delta includes the first 10 but no counts of b
		t.Errorf("the deltas give %d, want 12", c.Value())
	}
	if c = must(c.Merge(one)); c.Value() != three.Value() || !c.Equal(three) {
		t.Errorf("merged with the earlier value: got %d, want %d", c.Value(), three.Value())
	}
}

func TestPNCounter(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	var c crdt.PNCounter
	if d := changes(c.Add(a, 0)); !d.IsZero() {
		t.Error("adding 0 produced a delta")
	}
	for _, tt := range []struct {
		add  []int64
		want int64
	}{
		{[]int64{5, -7}, -2},
		{[]int64{math.MinInt64}, math.MinInt64},
		{[]int64{math.MinInt64, math.MaxInt64, 1}, 0},
		{[]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64}, math.MaxInt64},
		{[]int64{math.MinInt64, math.MinInt64, -1}, math.MinInt64},
		{[]int64{math.MinInt64, math.MinInt64, math.MinInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}, -3},
	} {
		c = crdt.PNCounter{}
		want := new(big.Int)
		for i, n := range tt.add {
			c = c.Add([]*crdt.Self{a, b}[i%2], n)
			want.Add(want, big.NewInt(n))
		}
		if c.Value() != tt.want || c.Big().Cmp(want) != 0 {
			t.Errorf("adding %v: got %d, %v, want %d", tt.add, c.Value(), c.Big(), tt.want)
		}
	}
	big1 := must(c.AddBig(a, new(big.Int).Lsh(big.NewInt(-1), 70)))
	if big1.Value() != math.MinInt64 || big1.Big().BitLen() != 71 {
		t.Errorf("-2^70 is %d, %v, want -2^70 and the minimum int64", big1.Value(), big1.Big())
	}
}

func TestCounterPruning(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	c := crdt.PNCounter{}.Add(a, 10).Add(b, 7).Add(b, -20)
	p := must(c.Prune(a, b.Node()))
	if p.Value() != c.Value() || p.NeedsPruning(b.Node()) || !c.NeedsPruning(b.Node()) {
		t.Errorf("pruned: got %d, want %d", p.Value(), c.Value())
	}
	if m := must(p.Merge(must(c.Cleanup(b.Node())))); !m.Equal(p) {
		t.Errorf("merged with the cleaned up value: got %d, want the pruned value", m.Value())
	}
	if twice := must(p.Merge(c)); twice.Value() == p.Value() {
		t.Error("merging a value without Cleanup counted nothing twice: correct the caveat in the package comment")
	}
	if same := must(c.Prune(a, a.Node())); !same.Equal(c) {
		t.Error("pruning a node into itself changed the value")
	}
}

func TestFlag(t *testing.T) {
	t.Parallel()
	var off crdt.Flag
	on := off.Enable()
	if off.Enabled() || !on.Enabled() || !on.Enable().Enabled() {
		t.Error("Enable did not set the flag")
	}
	if !must(off.Merge(on)).Enabled() || !must(on.Merge(off)).Enabled() || must(off.Merge(off)).Enabled() {
		t.Error("the merge of two flags is not true exactly if one of them is true")
	}
	if _, err := value(on).MergeDelta(changes(crdt.GCounter{}.Add(self(t, "a"), 1))); !errors.Is(err, crdt.ErrType) {
		t.Errorf("MergeDelta of a counter's delta: got error %v, want ErrType", err)
	}
}

func TestVersionVector(t *testing.T) {
	t.Parallel()
	a, b := self(t, "a"), self(t, "bb")
	var none crdt.VersionVector
	one := none.Increment(a)
	other := none.Increment(a) // a node never uses a number twice
	both := one.Increment(b)
	for _, tt := range []struct {
		x, y crdt.VersionVector
		want crdt.Ordering
	}{
		{none, none, crdt.Same},
		{none, one, crdt.Before},
		{both, one, crdt.After},
		{both, other, crdt.Concurrent},
		{both, both, crdt.Same},
	} {
		if got := tt.x.Compare(tt.y); got != tt.want {
			t.Errorf("got %v, want %v", got, tt.want)
		}
	}
	if one.Of(a.Node()) != 1 || other.Of(a.Node()) != 2 || one.Of(b.Node()) != 0 {
		t.Errorf("got numbers %d, %d, %d, want 1, 2 and 0", one.Of(a.Node()), other.Of(a.Node()), one.Of(b.Node()))
	}
	m := must(both.Merge(other))
	if m.Of(a.Node()) != 2 || m.Of(b.Node()) != 1 || m.Len() != 2 {
		t.Errorf("merged: got numbers %d and %d of %d nodes, want 2 and 1 of 2 nodes", m.Of(a.Node()), m.Of(b.Node()), m.Len())
	}
	p := must(m.Prune(a, b.Node()))
	if p.Of(b.Node()) != 0 || p.Of(a.Node()) != 3 {
		t.Errorf("pruned: got %d, want 3", p.Of(a.Node()))
	}
	if none.With(a.Node(), 0).Len() != 0 || none.With(a.Node(), 5).With(a.Node(), 3).Of(a.Node()) != 5 || m.Without(a.Node()).Len() != 1 {
		t.Error("With added a number 0 or lowered a number, or Without kept the node")
	}
	for n, of := range m.All() {
		if m.Of(n) != of {
			t.Errorf("All yields %v with %d, want %d as Of returns", n, of, m.Of(n))
		}
	}
}
