// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
)

// tally is the count of one node: n, or big if the count exceeds n. It is immutable.
type tally struct {
	node nodeRef
	n    uint64
	big  *big.Int // nil unless the count is above the largest n
}

// tallies are sorted by node and contain no zeros.
type tallies []tally

func (t tally) int() *big.Int {
	if t.big != nil {
		return t.big
	}
	return new(big.Int).SetUint64(t.n)
}

func (t tally) compare(other tally) int {
	switch {
	case t.big == nil && other.big == nil:
		return cmp.Compare(t.n, other.n)
	case t.big == nil:
		return -1
	case other.big == nil:
		return 1
	}
	return t.big.Cmp(other.big)
}

// plus adds n, or more if it is not nil. The count saturates at 1,024 bits.
func (t tally) plus(n uint64, more *big.Int) tally {
	if sum := t.n + n; more == nil && t.big == nil && sum >= t.n {
		return tally{t.node, sum, nil}
	}
	if more == nil {
		more = new(big.Int).SetUint64(n)
	}
	sum := new(big.Int).Add(t.int(), more)
	switch {
	case sum.IsUint64():
		return tally{t.node, sum.Uint64(), nil}
	case sum.BitLen() > maxCount*8:
		sum.Sub(sum.Lsh(big.NewInt(1), maxCount*8), big.NewInt(1))
	}
	return tally{t.node, 0, sum}
}

func (t tallies) find(node nodeRef) (int, bool) {
	return slices.BinarySearchFunc(t, node, func(t tally, n nodeRef) int { return compareRefs(t.node, n) })
}

// add returns the tallies with the count of one node increased, and the new tally of that node.
func (t tallies) add(node nodeRef, n uint64, more *big.Int) (tallies, tally) {
	i, found := t.find(node)
	one := tally{node: node}
	if found {
		one = t[i]
	}
	one = one.plus(n, more)
	return t.with(i, found, one), one
}

func (t tallies) with(i int, replace bool, one tally) tallies {
	next := make(tallies, 0, len(t)+1)
	next = append(append(next, t[:i]...), one)
	if replace {
		i++
	}
	return append(next, t[i:]...)
}

func (t tallies) without(node nodeRef) tallies {
	i, found := t.find(node)
	if !found {
		return t
	}
	return slices.Concat(t[:i], t[i+1:])
}

// covers reports whether no tally of other is higher.
func (t tallies) covers(other tallies) bool {
	i := 0
	for j := range other {
		for i < len(t) && compareRefs(t[i].node, other[j].node) < 0 {
			i++
		}
		if i == len(t) || t[i].node != other[j].node || t[i].compare(other[j]) < 0 {
			return false
		}
	}
	return true
}

// max returns the higher tally of each node. If the result equals t or other, it is that list
// itself.
func (t tallies) max(other tallies) tallies {
	switch {
	case t.covers(other):
		return t
	case other.covers(t):
		return other
	}
	next := make(tallies, 0, len(t)+len(other))
	i, j := 0, 0
	for i < len(t) && j < len(other) {
		one := t[i]
		c := compareRefs(t[i].node, other[j].node)
		if c > 0 || c == 0 && t[i].compare(other[j]) < 0 {
			one = other[j]
		}
		next = append(next, one)
		if c <= 0 {
			i++
		}
		if c >= 0 {
			j++
		}
	}
	return append(append(next, t[i:]...), other[j:]...)
}

func (t tallies) prune(removed, into nodeRef) tallies {
	i, found := t.find(removed)
	if !found || removed == into {
		return t
	}
	next, _ := t.without(removed).add(into, t[i].n, t[i].big)
	return next
}

func (t tallies) has(node nodeRef) bool {
	_, found := t.find(node)
	return found
}

func (t tallies) sum() (uint64, bool) {
	var sum uint64
	for _, one := range t {
		if one.big != nil || sum > math.MaxUint64-one.n {
			return math.MaxUint64, false
		}
		sum += one.n
	}
	return sum, true
}

func (t tallies) bigSum() *big.Int {
	sum := new(big.Int)
	for _, one := range t {
		sum.Add(sum, one.int())
	}
	return sum
}

func (t tallies) eachNode(table *nodeTable) {
	for _, one := range t {
		table.add(one.node)
	}
}

func (e *encoder) tallies(t tallies) {
	e.count(len(t))
	for _, one := range t {
		e.uint(e.nodes.index(one.node))
		if one.big != nil {
			e.bytes(one.big.Bytes())
			continue
		}
		b := binary.BigEndian.AppendUint64(nil, one.n)
		for b[0] == 0 {
			b = b[1:]
		}
		e.bytes(b)
	}
}

func (d *decoder) tallies() tallies {
	n := d.Count(MaxNodes, 3, "counts")
	if n == 0 {
		return nil
	}
	t := make(tallies, 0, n)
	least := uint64(0)
	for range n {
		i := d.Uint(math.MaxInt64, "node")
		if i < least {
			d.Fail("counts are not in order")
		}
		least = i + 1
		one := tally{node: d.nodeRef(i)}
		b := d.bytes(maxCount, "count")
		if len(b) == 0 || b[0] == 0 {
			d.Fail("a count is 0, or not in its shortest form")
		}
		if d.Err() != nil {
			return nil
		}
		if len(b) > 8 {
			one.big = new(big.Int).SetBytes(b)
		} else {
			for _, c := range b {
				one.n = one.n<<8 | uint64(c)
			}
		}
		t = append(t, one)
	}
	return t
}
