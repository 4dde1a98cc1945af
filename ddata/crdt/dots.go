// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "slices"

// dot identifies one change of one node by its sequence number, which starts at 1.
type dot struct {
	node nodeRef
	n    uint64
}

// vector holds one sequence number per node. It is sorted by node and immutable.
type vector []dot

func (v vector) find(node nodeRef) (int, bool) {
	for i := range v { // there are few dots, usually one
		switch c := compareRefs(v[i].node, node); {
		case c == 0:
			return i, true
		case c > 0:
			return i, false
		}
		if i == 8 {
			j, found := slices.BinarySearchFunc(v[i+1:], node, func(d dot, n nodeRef) int { return compareRefs(d.node, n) })
			return i + 1 + j, found
		}
	}
	return len(v), false
}

// of returns the number of a node, 0 if the vector does not contain the node.
func (v vector) of(node nodeRef) uint64 {
	if i, found := v.find(node); found {
		return v[i].n
	}
	return 0
}

func (v vector) has(d dot) bool { return v.of(d.node) == d.n }

// covers reports whether no number of other is higher.
func (v vector) covers(other vector) bool {
	for i := range other {
		if other[i].n > v.of(other[i].node) {
			return false
		}
	}
	return true
}

func (v vector) with(d dot) vector {
	i, found := v.find(d.node)
	if found && v[i].n >= d.n {
		return v
	}
	next := make(vector, 0, len(v)+1)
	next = append(append(next, v[:i]...), d)
	if found {
		i++
	}
	return append(next, v[i:]...)
}

// only returns the number of one node. The result shares memory with v.
func (v vector) only(node nodeRef) vector {
	i, found := v.find(node)
	if !found {
		return nil
	}
	return v[i : i+1 : i+1]
}

func (v vector) without(node nodeRef) vector {
	i, found := v.find(node)
	if !found {
		return v
	}
	return slices.Concat(v[:i], v[i+1:])
}

// max returns the higher number of each node. If the result equals v or other, it is that vector
// itself.
func (v vector) max(other vector) vector {
	switch {
	case v.covers(other):
		return v
	case other.covers(v):
		return other
	}
	next := make(vector, 0, len(v)+len(other))
	i, j := 0, 0
	for i < len(v) && j < len(other) {
		switch c := compareRefs(v[i].node, other[j].node); {
		case c < 0:
			next = append(next, v[i])
			i++
		case c > 0:
			next = append(next, other[j])
			j++
		default:
			next = append(next, dot{v[i].node, max(v[i].n, other[j].n)})
			i, j = i+1, j+1
		}
	}
	return append(append(next, v[i:]...), other[j:]...)
}

// filter returns the dots for which keep returns true. If all are kept, it is v itself.
func (v vector) filter(keep func(dot) bool) vector {
	for i, d := range v {
		if keep(d) {
			continue
		}
		next := slices.Clone(v[:i])
		for _, d := range v[i+1:] {
			if keep(d) {
				next = append(next, d)
			}
		}
		return next
	}
	return v
}

func (v vector) newer(seen vector) vector {
	return v.filter(func(d dot) bool { return d.n > seen.of(d.node) })
}

func (v vector) equal(other vector) bool { return slices.Equal(v, other) }

// mergeDots merges the dots of an element that both sides hold. A dot that one side has seen but no
// longer holds was removed.
func mergeDots(a, seenA, b, seenB vector) vector {
	if a.equal(b) {
		return a
	}
	keptA := a.filter(func(d dot) bool { return d.n > seenB.of(d.node) || b.has(d) })
	keptB := b.filter(func(d dot) bool { return d.n > seenA.of(d.node) || a.has(d) })
	return keptA.max(keptB)
}

// dots are the additions of an element as a tree stores them. Usually there is one, which needs no
// allocation. The zero value is empty.
type dots struct {
	one  [1]dot  // used if there is one dot
	more *vector // used if there are several
}

func dotsOf(v vector) dots {
	switch len(v) {
	case 0:
		return dots{}
	case 1:
		return dots{one: [1]dot{v[0]}}
	}
	more := append(vector(nil), v...) // a copy, so that v does not escape to the heap
	return dots{more: &more}
}

// vector returns the dots. The result may share memory with d.
func (d *dots) vector() vector {
	switch {
	case d.more != nil:
		return *d.more
	case d.one[0].n != 0:
		return d.one[:]
	}
	return nil
}

func (d *dots) of(m nodeRef) uint64 {
	if d.more == nil && d.one[0].node == m {
		return d.one[0].n
	}
	return d.vector().of(m)
}
