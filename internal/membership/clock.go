// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/refold-io/refold/identity"
)

// Order is how two vector clocks stand to each other.
type Order uint8

// The changes that one contains are the same as those of the other, some of
// them, more of them, or not all and others.
const (
	Same Order = iota
	Before
	After
	Concurrent
)

func (o Order) String() string {
	return [...]string{"same", "before", "after", "concurrent"}[o&3]
}

// Clock is a vector clock: how many changes of each node a state contains. It is
// sorted by node and immutable; a node that is not in it stands for 0.
type Clock []Tick

// Tick is how many changes of a node are contained, at least 1.
type Tick struct {
	Node  identity.Node
	Count uint64
}

// Compare says how c stands to other, in one pass.
func (c Clock) Compare(other Clock) Order {
	less, more := false, false
	for x, y := range pairs(c, other, compareTicks) {
		switch {
		case y == nil:
			more = true
		case x == nil:
			less = true
		default:
			less = less || x.Count < y.Count
			more = more || x.Count > y.Count
		}
		if less && more {
			return Concurrent
		}
	}
	switch {
	case less:
		return Before
	case more:
		return After
	}
	return Same
}

// Merge returns the higher count of each node.
func (c Clock) Merge(other Clock) Clock {
	merged := make(Clock, 0, max(len(c), len(other)))
	for x, y := range pairs(c, other, compareTicks) {
		if x == nil || y != nil && y.Count > x.Count {
			x = y
		}
		merged = append(merged, *x)
	}
	return merged
}

// Add returns a clock with one more change of a node.
func (c Clock) Add(n identity.Node) Clock {
	i, found := c.find(n)
	if !found {
		return slices.Insert(slices.Clone(c), i, Tick{n, 1})
	}
	added := slices.Clone(c)
	added[i].Count++
	return added
}

// Without returns a clock that has forgotten some nodes.
func (c Clock) Without(gone func(identity.Node) bool) Clock {
	if !slices.ContainsFunc(c, func(t Tick) bool { return gone(t.Node) }) {
		return c
	}
	return slices.DeleteFunc(slices.Clone(c), func(t Tick) bool { return gone(t.Node) })
}

// Of returns the count of a node.
func (c Clock) Of(n identity.Node) uint64 {
	if i, found := c.find(n); found {
		return c[i].Count
	}
	return 0
}

func (c Clock) find(n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(c, n, func(t Tick, n identity.Node) int { return t.Node.Compare(n) })
}
