// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"iter"

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
// sequence, so the number is above the previous one, but not necessarily by one.
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

// With returns the vector with at least n for a node, for numbers that are not those of value
// changes, such as numbers of deltas.
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
