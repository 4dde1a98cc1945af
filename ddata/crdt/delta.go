// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"slices"

	"github.com/refold-io/refold/identity"
)

// Delta is a set of changes of a value. It is immutable. The zero value contains no changes; only
// its methods IsZero, Merge and ModifiedOnlyBy may be called.
type Delta struct{ c change }

type change interface {
	shape() shape
	// applyTo returns a value of the same shape with the change.
	applyTo(c core) (core, error)
	// then returns this change followed by a later one of the same node and shape.
	then(later change) (change, error)
	opCount() int
	modifiedOnlyBy(node identity.Node) bool
	eachNode(t *nodeTable)
	encode(e *encoder)
}

// IsZero reports whether the delta contains no changes.
func (d Delta) IsZero() bool { return d.c == nil }

// Type returns the name of the type of the values that the delta belongs to.
func (d Delta) Type() string { return d.c.shape().String() }

// Merge returns this delta followed by a later delta of the same node. The error matches ErrType if
// the types differ.
func (d Delta) Merge(later Delta) (Delta, error) {
	switch {
	case d.c == nil:
		return later, nil
	case later.c == nil:
		return d, nil
	}
	c, err := join(d.c, later.c)
	if err != nil {
		c = d.c
	}
	return Delta{c}, err
}

// NeedsCausal reports whether the delta must be applied after all earlier deltas of its node,
// without a gap.
func (d Delta) NeedsCausal() bool { return d.c.shape().deltas() == CausalDeltas }

// Ops returns the number of operations in the delta. When there are many, sending the whole value
// is cheaper. Ops returns 0 for a type whose deltas are never larger than the value.
func (d Delta) Ops() int { return d.c.opCount() }

// Zero returns the empty value, to which the delta is applied where the key does not exist yet.
func (d Delta) Zero() Value { return Value{d.c.shape().empty()} }

// AppendBinary appends the encoded delta with the contract of Value.AppendBinary; Types.DecodeDelta
// reads it. The zero Delta appends nothing.
func (d Delta) AppendBinary(dst []byte) ([]byte, error) {
	if d.c == nil {
		return dst, nil
	}
	return appendBinary(dst, versionDelta, d.c)
}

func join(former, later change) (change, error) {
	if !former.shape().equal(later.shape()) {
		return nil, wrongType(former.shape(), later)
	}
	return former.then(later)
}

func applyDelta(c core, d change) (core, error) {
	if d == nil {
		return c.resetDelta(), nil
	}
	if !c.shape().equal(d.shape()) {
		return nil, wrongType(c.shape(), d)
	}
	return d.applyTo(c)
}

// whole is a change that is itself a value.
type whole struct{ core }

func (d whole) opCount() int { return 0 }

func (d whole) applyTo(c core) (core, error) { return c.merge(d.core) }

func (d whole) then(later change) (change, error) {
	l, _ := later.(whole)
	c, err := d.merge(l.core)
	return whole{c}, err
}

// NeedsFullState reports whether a delta removes additions that the sender had seen and this value
// has not seen. Applying such a delta could resurrect removed elements, so the receiver requests
// the full state instead. Additions of the node that made the delta count as seen, because its
// deltas are applied without a gap: see Delta.NeedsCausal. NeedsFullState is always false for
// users' types.
func (v Value) NeedsFullState(d Delta) bool {
	return d.c != nil && v.c.shape().equal(d.c.shape()) && needsFullState(v.c, d.c)
}

func needsFullState(c core, d change) bool {
	switch d := d.(type) {
	case *orsetDelta:
		s, ok := c.(*orset)
		return ok && s.needsFullState(d)
	case *mapDelta:
		m, ok := c.(*ormap)
		return ok && m.needsFullState(d)
	}
	return false
}

func (s *orset) needsFullState(d *orsetDelta) bool {
	if !slices.ContainsFunc(d.ops, func(op orsetOp) bool { return op.kind == opRemove }) {
		return false
	}
	seen := s.vv
	for i := range d.ops {
		op := &d.ops[i]
		if op.kind == opRemove && !seen.max(op.vv).covers(op.context) {
			return true
		}
		seen = op.seenAfter(seen)
	}
	return false
}

// seenAfter returns the changes that a receiver has seen after op. The parameter seen contains the
// changes that the receiver had seen before.
func (op *orsetOp) seenAfter(seen vector) vector {
	if op.full != nil {
		seen = seen.max(op.full.vv)
	}
	return seen.max(op.vv)
}

func (m *ormap) needsFullState(d *mapDelta) bool {
	seen := m.keys
	for _, op := range d.ops {
		if seen.needsFullState(op.keys) {
			return true
		}
		seen = &orset{elem: seen.elem, vv: seen.vv}
		for i := range op.keys.ops {
			seen.vv = op.keys.ops[i].seenAfter(seen.vv)
		}
		for key, vd := range op.deltas.all() {
			if needsFullState(m.valueOrEmpty(key), vd) {
				return true
			}
		}
	}
	return false
}

// ModifiedOnlyBy reports whether all changes were made with the Self of the node. Deltas of users'
// types carry no nodes, so ModifiedOnlyBy returns true for them.
func (d Delta) ModifiedOnlyBy(node identity.Node) bool { return d.c == nil || d.c.modifiedOnlyBy(node) }

func (d whole) modifiedOnlyBy(node identity.Node) bool {
	c, ok := d.core.(*counter)
	return !ok || c.up.onlyOf(node) && c.down().onlyOf(node) // other types record no nodes in their deltas
}

func (t tallies) onlyOf(node identity.Node) bool {
	return !slices.ContainsFunc(t, func(one tally) bool { return one.node.Value() != node })
}

func (d *orsetDelta) modifiedOnlyBy(node identity.Node) bool {
	for i := range d.ops {
		op := &d.ops[i]
		if op.kind != opFull && !op.vv.onlyOf(node) { // a set that was cleared may have held elements of other nodes
			return false
		}
	}
	return true
}

func (v vector) onlyOf(node identity.Node) bool {
	return !slices.ContainsFunc(v, func(d dot) bool { return d.node.Value() != node })
}

func (d *mapDelta) modifiedOnlyBy(node identity.Node) bool {
	for _, op := range d.ops {
		if !op.keys.modifiedOnlyBy(node) {
			return false
		}
		for _, vd := range op.deltas.all() {
			if !vd.modifiedOnlyBy(node) {
				return false
			}
		}
	}
	return true
}

func (d *customDelta) modifiedOnlyBy(identity.Node) bool { return true }

// DeltaIsComplete reports whether the delta of the value describes all differences from an older
// value. The delta is complete if the value was made from the older value by changes only. If the
// value was also merged with another one, the delta is incomplete and replicas need the whole
// value. For a user's type, DeltaIsComplete applies the delta to older and compares the encoded
// forms.
func (v Value) DeltaIsComplete(older Value) bool {
	if older.c == nil {
		return false
	}
	switch c := v.c.(type) {
	case *counter:
		return c.base == older.c
	case *gset:
		return c.base == older.c
	case *orset:
		return c.base == older.c
	case *ormap:
		return c.base == older.c
	case *custom:
		return c.deltaIsComplete(older.c)
	}
	return false
}

func (o *custom) deltaIsComplete(older core) bool {
	d := o.changes()
	if d == nil {
		return false
	}
	next, err := applyDelta(older, d)
	return err == nil && Equal(Value{next}, Value{o.resetDelta()})
}

// HasCustomType reports whether the value is of a user's type or is a map of such values. The size
// that a delta adds to such a value is unknown.
func (v Value) HasCustomType() bool {
	s := v.c.shape()
	for s.of != nil {
		s = *s.of
	}
	return s.kind == kindCustom
}

// FullScans returns the number of operations in the delta that visit all elements of a value, such
// as clearing a set. Such operations are short to encode and expensive to apply, so receivers
// should limit their number. FullScans returns 0 for users' types.
func (d Delta) FullScans() int { return fullScans(d.c) }

func fullScans(d change) int {
	n := 0
	switch d := d.(type) {
	case *orsetDelta:
		for i := range d.ops {
			if d.ops[i].kind == opFull {
				n++
			}
		}
	case *mapDelta:
		for _, op := range d.ops {
			most := 0 // scans of different values visit different elements, so their costs do not add up
			for _, vd := range op.deltas.all() {
				most = max(most, fullScans(vd))
			}
			n += fullScans(op.keys) + most
		}
	}
	return n
}
