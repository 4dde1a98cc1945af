// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/identity"
)

// handle is what the typed values of this package share: T is the type that
// embeds it. The zero value is the empty value.
type handle[T any] struct {
	v     core
	types *Types
}

// empties is what a typed value says about its type: the shape of the zero value,
// none if that needs types that are not there.
type shaped interface {
	empty(types *Types) shape
}

func (h handle[T]) zero(types *Types) (shape, error) {
	var t T
	if e, ok := any(t).(shaped); ok {
		if s := e.empty(types); s.kind != 0 {
			return s, nil
		}
	}
	return shape{}, fmt.Errorf("%w: %v: give NewTypes a Define of what it holds", ErrUndefined, reflect.TypeFor[T]())
}

// held returns the value without its type parameters. Types are those of the
// value itself, if it has some.
func (h handle[T]) untyped(types *Types) (core, error) {
	if h.v != nil {
		return h.v, nil
	}
	if h.types != nil {
		types = h.types
	}
	s, err := h.zero(types)
	if err != nil {
		return nil, err
	}
	return s.empty(), nil
}

// hold makes the zero value, of which the shape is given, one that holds something.
func (h *handle[T]) assign(v core, types *Types, s shape) error {
	if s.kind == 0 {
		_, err := h.zero(types)
		return err
	}
	if v != nil && !s.accepts(v.shape()) {
		return wrongType(s, v)
	}
	h.v, h.types = v, types
	return nil
}

// accepts reports whether a Go type whose zero value has one shape can hold
// another: both variants of a multi-map have one Go type.
func (s shape) accepts(other shape) bool {
	if s.kind == kindMultiMap && other.kind == kindMultiMapDeltas {
		return s.elem == other.elem && s.of.equal(*other.of)
	}
	return s.equal(other)
}

// of returns another value of the same Go type. It must have the right shape.
func (h handle[T]) of(v core) T {
	var t T
	if p, ok := any(&t).(interface{ set(v core, types *Types) }); ok {
		p.set(v, h.types)
	}
	return t
}

func (h *handle[T]) set(v core, types *Types) { h.v, h.types = v, types }

// Merge returns what both values know. The error matches ErrType for two variants
// of a multi-map, and ErrUndefined.
func (h handle[T]) Merge(other T) (T, error) {
	a, err := h.untyped(nil)
	if err != nil {
		return h.of(h.v), err
	}
	b, err := h.types.core(other)
	if err != nil {
		return h.of(h.v), err
	}
	return h.changed(a.merge(b))
}

// changed returns a value that follows from this one, or this one with an error.
func (h handle[T]) changed(v core, err error) (T, error) {
	if err != nil {
		return h.of(h.v), err
	}
	return h.of(v), nil
}

// Equal reports whether two values have the same encoded form.
func (h handle[T]) Equal(other T) bool {
	a, err := h.untyped(nil)
	if err != nil {
		return false
	}
	b, err := h.types.core(other)
	return err == nil && Equal(Value{a}, Value{b})
}

// Delta returns what was changed since ResetDelta, Merge or decoding, and whether
// that is something.
func (h handle[T]) Delta() (Delta, bool) {
	if h.v == nil {
		return Delta{}, false
	}
	d := Delta{h.v.changes()}
	return d, !d.IsZero()
}

// MergeDelta returns the value with what a delta tells. The error matches ErrType
// if it is one of another type.
func (h handle[T]) MergeDelta(d Delta) (T, error) {
	a, err := h.untyped(nil)
	if err != nil {
		return h.of(h.v), err
	}
	v, err := Value{a}.MergeDelta(d)
	return h.changed(v.c, err)
}

// ResetDelta returns the value without its delta.
func (h handle[T]) ResetDelta() T {
	if h.v == nil {
		return h.of(nil)
	}
	return h.of(h.v.resetDelta())
}

// ModifiedBy returns the nodes that the value holds history of, in order.
func (h handle[T]) ModifiedBy() []identity.Node {
	if h.v == nil {
		return nil
	}
	return h.v.modifiedBy()
}

// NeedsPruning reports whether the value holds history of a node.
func (h handle[T]) NeedsPruning(removed identity.Node) bool {
	return h.v != nil && h.v.needsPruning(removed)
}

// Prune moves the history of a removed node to self. What the value means stays
// the same. The error is that of a user's type in a map.
func (h handle[T]) Prune(self *Self, removed identity.Node) (T, error) {
	if h.v == nil {
		return h.of(nil), nil
	}
	v, err := Value{h.v}.Prune(self, removed)
	return h.changed(v.c, err)
}

// Cleanup strips the history of a removed node, as Value.Cleanup.
func (h handle[T]) Cleanup(removed identity.Node) (T, error) {
	if h.v == nil {
		return h.of(nil), nil
	}
	v, err := Value{h.v}.Cleanup(removed)
	return h.changed(v.c, err)
}

// AppendBinary appends the encoded value, as Value.AppendBinary.
func (h handle[T]) AppendBinary(dst []byte) ([]byte, error) {
	v, err := h.untyped(nil)
	if err != nil {
		return nil, err
	}
	return Value{v}.AppendBinary(dst)
}

// Deltas tells how the changes of a type spread.
type Deltas byte

const (
	// NoDeltas says: only whole values.
	NoDeltas Deltas = iota
	// FreeDeltas says: what changed, in any order and any number of times.
	FreeDeltas
	// CausalDeltas says: what changed, from each node in the order in which it was
	// changed there and without a gap.
	CausalDeltas
)

// Value is a value of any data type without its Go type parameters, as a
// replicator holds it. It is immutable. Types.Value makes one of a typed value,
// As the other way round. The zero value is no value; but for IsZero and Type, its
// methods must not be called.
type Value struct{ c core }

// core is what a value is made of. Those that hold a delta also know what they
// were before, so that to merge them with that takes no time.
type core interface {
	shape() shape
	// merge returns the receiver itself if it knows all of the other.
	merge(other core) (core, error)
	changes() change // nil if there are none
	resetDelta() core
	applyDelta(d change) (core, error)
	modifiedBy() []identity.Node
	needsPruning(removed identity.Node) bool
	pruned(self *Self, removed identity.Node) (core, error)
	cleaned(removed identity.Node) (core, error)
	eachNode(t *nodeTable)
	encode(e *encoder)
}

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.c == nil }

// Type names the type and its parameters, as in "ORSet[string]". It is empty if there
// is no value.
func (v Value) Type() string {
	if v.c == nil {
		return ""
	}
	return v.c.shape().String()
}

// Deltas tells how changes of the type spread.
func (v Value) Deltas() Deltas { return v.c.shape().deltas() }

// Merge returns what both sides know. If that is what this one knows and it has no
// delta, it is this value itself. The result has no delta. The error matches
// ErrType if the types differ.
func (v Value) Merge(other Value) (Value, error) {
	c, err := v.c.merge(other.c)
	if err != nil {
		return v, err
	}
	return Value{c}, nil
}

// Delta returns what was changed since ResetDelta, Merge or decoding.
func (v Value) Delta() Delta { return Delta{v.c.changes()} }

// ResetDelta returns the value without its delta.
func (v Value) ResetDelta() Value { return Value{v.c.resetDelta()} }

// MergeDelta returns the value with what a delta tells. The error matches ErrType
// if it is one of another type.
func (v Value) MergeDelta(d Delta) (Value, error) {
	c, err := v.c.applyDelta(d.c)
	if err != nil {
		return v, err
	}
	return Value{c}, nil
}

// TakesDelta reports whether what Delta.AppendBinary wrote begins as that of a delta of the value's type. What follows is
// not looked at.
func (v Value) TakesDelta(data []byte) bool {
	const most = 32 // few types are longer
	e := encoder{dst: append(make([]byte, 0, most), versionDelta)}
	e.shape(v.c.shape())
	return bytes.HasPrefix(data, e.dst)
}

// ModifiedBy returns the nodes that the value holds history of, in order.
func (v Value) ModifiedBy() []identity.Node { return v.c.modifiedBy() }

// NeedsPruning reports whether the value holds history of a node.
func (v Value) NeedsPruning(removed identity.Node) bool { return v.c.needsPruning(removed) }

// Prune moves the history of a removed node to self. What the value means stays
// the same. The error is that of a user's type.
func (v Value) Prune(self *Self, removed identity.Node) (Value, error) {
	if !v.NeedsPruning(removed) || removed == self.node {
		return v.ResetDelta(), nil
	}
	c, err := v.c.pruned(self, removed)
	if err != nil {
		return v, err
	}
	return Value{c}, nil
}

// Cleanup strips the history of a removed node, which some other node has moved to
// itself. The error is that of a user's type.
func (v Value) Cleanup(removed identity.Node) (Value, error) {
	if !v.NeedsPruning(removed) {
		return v.ResetDelta(), nil
	}
	c, err := v.c.cleaned(removed)
	if err != nil {
		return v, err
	}
	return Value{c}, nil
}

// AppendBinary appends the encoded value, without its delta; Types.Decode reads
// it. The same value has the same bytes on all nodes. The error matches ErrLimit if
// it is too large, or is that of a user's type.
func (v Value) AppendBinary(dst []byte) ([]byte, error) { return appendBinary(dst, versionValue, v.c) }

// Equal reports whether two values are of one type and have the same bytes.
func Equal(a, b Value) bool {
	if a.c == b.c {
		return true
	}
	if a.c == nil || b.c == nil || !a.c.shape().equal(b.c.shape()) {
		return false
	}
	x, err := a.AppendBinary(nil)
	if err != nil {
		return false
	}
	y, err := b.AppendBinary(nil)
	return err == nil && bytes.Equal(x, y)
}

// same returns other as a core of the same type as c.
func same[C core](c C, other core) (C, error) {
	o, ok := other.(C)
	if !ok || !c.shape().equal(other.shape()) {
		return o, wrongType(c.shape(), other)
	}
	return o, nil
}

// wrongType is the error about something that is not of a shape.
func wrongType(want shape, got interface{ shape() shape }) error {
	if got == nil {
		return fmt.Errorf("%w: nothing instead of %v", ErrType, want)
	}
	return fmt.Errorf("%w: %v instead of %v", ErrType, got.shape(), want)
}

// noHistory is for types that hold no history of nodes.
type noHistory struct{}

func (noHistory) modifiedBy() []identity.Node     { return nil }
func (noHistory) needsPruning(identity.Node) bool { return false }
