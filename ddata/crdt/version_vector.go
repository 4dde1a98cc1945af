// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"cmp"
	"iter"
	"slices"

	"github.com/refold-io/refold/identity"
)

// VersionVector holds one sequence number per node. The zero value is empty. It is immutable.
type VersionVector struct{ handle[VersionVector] }

// Ordering is the relation of two version vectors.
type Ordering byte

const (
	// Same means that both vectors are equal.
	Same Ordering = iota
	// Before means that the other vector contains all of this one and more.
	Before
	// After means that this vector contains all of the other one and more.
	After
	// Concurrent means that each vector contains something that the other one does not.
	Concurrent
)

// String returns the name of the ordering.
func (o Ordering) String() string {
	return [...]string{"same", "before", "after", "concurrent"}[o&3]
}

func (VersionVector) empty(*Types) shape { return shape{kind: kindVersions} }

func (v VersionVector) core() vector {
	if c, ok := v.v.(*versions); ok {
		return c.vector
	}
	return nil
}

// Increment returns the vector with a new number for self. All changes of a node share one
// sequence, so the new number may exceed the previous one by more than one.
func (v VersionVector) Increment(self *Self) VersionVector {
	return v.of(&versions{vector: v.core().with(self.next())})
}

// Of returns the number of a node, 0 if the vector does not contain it.
func (v VersionVector) Of(node identity.Node) uint64 { return v.core().of(refOf(node)) }

// All yields the nodes in order, with their numbers.
func (v VersionVector) All() iter.Seq2[identity.Node, uint64] {
	return func(yield func(identity.Node, uint64) bool) {
		for _, d := range v.core() {
			if !yield(d.node.Value(), d.n) {
				return
			}
		}
	}
}

// Len returns the number of nodes.
func (v VersionVector) Len() int { return len(v.core()) }

// With returns the vector with the number of a node raised to at least n. It is for numbers that do
// not count changes of values, such as numbers of deltas.
func (v VersionVector) With(node identity.Node, n uint64) VersionVector {
	if n == 0 {
		return v
	}
	return v.of(&versions{vector: v.core().with(dot{refOf(node), n})})
}

// Without returns the vector without a node.
func (v VersionVector) Without(node identity.Node) VersionVector {
	return v.of(&versions{vector: v.core().without(refOf(node))})
}

// Compare returns the relation of the vector to another one.
func (v VersionVector) Compare(other VersionVector) Ordering {
	a, b := v.core(), other.core()
	switch more, less := a.covers(b), b.covers(a); {
	case more && less:
		return Same
	case more:
		return After
	case less:
		return Before
	}
	return Concurrent
}

type versions struct {
	noDeltas
	vector vector
}

func (v *versions) resetDelta() core                     { return v }
func (v *versions) needsPruning(gone identity.Node) bool { return v.vector.of(refOf(gone)) > 0 }
func (v *versions) shape() shape                         { return shape{kind: kindVersions} }
func (v *versions) eachNode(t *nodeTable)                { t.vector(v.vector) }
func (v *versions) encode(e *encoder)                    { e.vector(v.vector) }
func (v *versions) decode(d *decoder)                    { v.vector = d.vector() }

func (v *versions) merge(other core) (core, error) {
	o, _ := other.(*versions)
	if v.vector.covers(o.vector) {
		return v, nil
	}
	return &versions{vector: v.vector.max(o.vector)}, nil
}

func (v *versions) pruned(self *Self, removed identity.Node) (core, error) {
	return &versions{vector: v.vector.without(refOf(removed)).with(self.next())}, nil
}

func (v *versions) cleaned(removed identity.Node) (core, error) {
	return &versions{vector: v.vector.without(refOf(removed))}, nil
}

// dot identifies one change of one node by its sequence number, which starts at 1.
type dot struct {
	node nodeRef
	n    uint64
}

func (d dot) owner() nodeRef        { return d.node }
func (d dot) compare(other dot) int { return cmp.Compare(d.n, other.n) }

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
	return with(v, i, found, d)
}

// only returns a vector with the number of one node. The result shares memory with v.
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

// max returns the higher number of each node. If the result equals v or other, max returns that vector itself.
func (v vector) max(other vector) vector {
	switch {
	case v.covers(other):
		return v
	case other.covers(v):
		return other
	}
	return mergeByNode(v, other)
}

// filter returns the dots for which keep returns true. If all dots are kept, filter returns v itself.
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

// mergeDots merges the dots of an element that both sides hold. A dot that one side has seen but no
// longer holds was removed.
func mergeDots(a, seenA, b, seenB vector) vector {
	if slices.Equal(a, b) {
		return a
	}
	keptA := a.filter(func(d dot) bool { return d.n > seenB.of(d.node) || b.has(d) })
	keptB := b.filter(func(d dot) bool { return d.n > seenA.of(d.node) || a.has(d) })
	return keptA.max(keptB)
}

// dots are the additions of an element as a tree stores them. An element usually has one dot, which
// needs no allocation. The zero value is empty.
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
