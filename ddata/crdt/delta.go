// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import "github.com/refold-io/refold/identity"

// Delta is some changes of a value. It is immutable. The zero value is no delta,
// which changes nothing; but for IsZero and Merge, its methods must not be called.
type Delta struct{ c change }

// change is what a delta is made of.
type change interface {
	shape() shape
	// then returns this change followed by a later one of the same node.
	then(later change) (change, error)
	opCount() int
	by(node identity.Node) bool
	eachNode(t *nodeTable)
	encode(e *encoder)
}

// IsZero reports whether there is no delta.
func (d Delta) IsZero() bool { return d.c == nil }

// Type names the type of the values that it belongs to.
func (d Delta) Type() string { return d.c.shape().String() }

// Merge returns this delta followed by a later one of the same node. The error
// matches ErrType if they belong to different types.
func (d Delta) Merge(later Delta) (Delta, error) {
	switch {
	case d.c == nil:
		return later, nil
	case later.c == nil:
		return d, nil
	}
	c, err := d.c.then(later.c)
	if err != nil {
		return d, err
	}
	return Delta{c}, nil
}

// NeedsCausal reports whether it must be applied behind all earlier deltas of its
// node, without a gap.
func (d Delta) NeedsCausal() bool { return d.c.shape().deltas() == CausalDeltas }

// Ops is how many steps it takes to apply it: when they are many, the whole value
// is better. It is 0 for types whose deltas are never larger than the value.
func (d Delta) Ops() int { return d.c.opCount() }

// Zero returns the empty value, to which it is applied where there is none.
func (d Delta) Zero() Value { return Value{d.c.shape().empty()} }

// AppendBinary appends the encoded delta, as Value.AppendBinary; Types.DecodeDelta
// reads it. That of no delta is empty.
func (d Delta) AppendBinary(dst []byte) ([]byte, error) {
	if d.c == nil {
		return dst, nil
	}
	return appendBinary(dst, versionDelta, d.c)
}

// sameChange returns a change as one of a type.
func sameChange[C change](of shape, d change) (C, error) {
	o, ok := d.(C)
	if !ok || !of.equal(d.shape()) {
		return o, wrongType(of, d)
	}
	return o, nil
}

// whole is the change of a type whose changes are values.
type whole struct{ core }

func (d whole) opCount() int { return 0 }

func (d whole) then(later change) (change, error) {
	l, err := sameChange[whole](d.shape(), later)
	if err != nil {
		return nil, err
	}
	c, err := d.merge(l.core)
	if err != nil {
		return nil, err
	}
	return whole{c}, nil
}

// mergeWhole applies a change that is a value.
func mergeWhole(c core, d change) (core, error) {
	o, err := sameChange[whole](c.shape(), d)
	if err != nil {
		return nil, err
	}
	return c.merge(o.core)
}
