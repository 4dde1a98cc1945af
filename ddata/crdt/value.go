// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/identity"
)

// handle is the common part of the typed values of this package; T is the type that embeds it. The
// zero value is the empty value.
type handle[T any] struct {
	v     core
	types *Types
}

// shaped is implemented by typed values. empty returns the shape of the zero value, or the zero
// shape if types lacks a required definition.
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
	return shape{}, fmt.Errorf("%w: %v: pass the Define of its value type to NewTypes", ErrUndefined, reflect.TypeFor[T]())
}

// untyped returns the value without its type parameters. The value's own types take precedence over
// the argument.
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

// coreOf returns the untyped value, whose type is C.
func coreOf[C core, T any](h handle[T]) C {
	c, ok := h.v.(C)
	if !ok {
		empty, _ := h.untyped(nil) // without an error: no type parameter needs a definition
		c, _ = empty.(C)
	}
	return c
}

// assign sets the content of a zero value of shape s.
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

// accepts reports whether a Go type whose zero value has shape s can hold a value of another shape:
// both variants of a multi-map have one Go type.
func (s shape) accepts(other shape) bool {
	if s.kind == kindMultiMap && other.kind == kindMultiMapDeltas {
		return s.elem == other.elem && s.of.equal(*other.of)
	}
	return s.equal(other)
}

// of returns another value of the same Go type. v must have the right shape.
func (h handle[T]) of(v core) T {
	var t T
	if p, ok := any(&t).(interface{ set(v core, types *Types) }); ok {
		p.set(v, h.types)
	}
	return t
}

func (h *handle[T]) set(v core, types *Types) { h.v, h.types = v, types }

// Merge returns the merge of both values. The error matches ErrType if the values are different
// variants of a multi-map, and ErrUndefined as for Types.Value.
func (h handle[T]) Merge(other T) (T, error) {
	a, err := h.untyped(nil)
	if err != nil {
		return h.of(h.v), err
	}
	b, err := h.types.core(other)
	if err != nil {
		return h.of(h.v), err
	}
	return h.changed(mergeCores(a, b))
}

// changed returns the result of an operation, or the unchanged value with the error.
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

// Delta returns the changes since the last ResetDelta, Merge or decoding, and whether there are
// any.
func (h handle[T]) Delta() (Delta, bool) {
	if h.v == nil {
		return Delta{}, false
	}
	d := Delta{h.v.changes()}
	return d, !d.IsZero()
}

// MergeDelta returns the value with a delta applied. The zero Delta changes nothing. The error
// matches ErrType if the delta is of another type.
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

// ModifiedBy returns the nodes of which the value holds history, sorted.
func (h handle[T]) ModifiedBy() []identity.Node {
	if h.v == nil {
		return nil
	}
	return modifiedBy(h.v)
}

// NeedsPruning reports whether the value holds history of a node.
func (h handle[T]) NeedsPruning(removed identity.Node) bool {
	return h.v != nil && h.v.needsPruning(removed)
}

// Prune moves the history of a removed node to self. The meaning of the value does not change. The
// error is that of a user's type in a map.
func (h handle[T]) Prune(self *Self, removed identity.Node) (T, error) {
	if h.v == nil {
		return h.of(nil), nil
	}
	v, err := Value{h.v}.Prune(self, removed)
	return h.changed(v.c, err)
}

// Cleanup strips the history of a removed node, with the contract of Value.Cleanup.
func (h handle[T]) Cleanup(removed identity.Node) (T, error) {
	if h.v == nil {
		return h.of(nil), nil
	}
	v, err := Value{h.v}.Cleanup(removed)
	return h.changed(v.c, err)
}

// AppendBinary appends the encoded value, with the contract of Value.AppendBinary.
func (h handle[T]) AppendBinary(dst []byte) ([]byte, error) {
	v, err := h.untyped(nil)
	if err != nil {
		return nil, err
	}
	return Value{v}.AppendBinary(dst)
}

// Deltas is how a type replicates its changes.
type Deltas byte

const (
	// NoDeltas means that only whole values are sent.
	NoDeltas Deltas = iota
	// FreeDeltas means that deltas may be applied in any order and any number of times.
	FreeDeltas
	// CausalDeltas means that the deltas of each node must be applied in order and without a gap.
	CausalDeltas
)

// Value is a value of any data type without its Go type parameters, as a replicator stores it. It
// is immutable. Types.Value and As convert from and to typed values. The zero Value holds no value;
// only its methods IsZero and Type may be called.
type Value struct{ c core }

// core is the content of a value. A core with a delta also refers to the core before the delta, so
// that merging the two takes constant time.
type core interface {
	shape() shape
	// merge merges a value of the same shape. It returns the receiver itself if other adds nothing.
	merge(other core) (core, error)
	changes() change // nil if there are none
	resetDelta() core
	needsPruning(removed identity.Node) bool
	// pruned and cleaned are called only if the value needs pruning.
	pruned(self *Self, removed identity.Node) (core, error)
	cleaned(removed identity.Node) (core, error)
	eachNode(t *nodeTable)
	encode(e *encoder)
	decode(d *decoder) // sets the content of an empty value
}

func mergeCores(a, b core) (core, error) {
	if b == nil || !a.shape().equal(b.shape()) {
		return nil, wrongType(a.shape(), b)
	}
	return a.merge(b)
}

func (v Value) changed(c core, err error) (Value, error) {
	if err != nil {
		return v, err
	}
	return Value{c}, nil
}

// IsZero reports whether v is the zero Value.
func (v Value) IsZero() bool { return v.c == nil }

// Type returns the name of the type with its parameters, such as "ORSet[string]". It is empty for
// the zero Value.
func (v Value) Type() string {
	if v.c == nil {
		return ""
	}
	return v.c.shape().String()
}

// Deltas returns how the type replicates its changes.
func (v Value) Deltas() Deltas { return v.c.shape().deltas() }

// Merge returns the merge of both values, without a delta. If other adds nothing and v has no
// delta, the result is v itself. The error matches ErrType if the types differ.
func (v Value) Merge(other Value) (Value, error) {
	return v.changed(mergeCores(v.c, other.c))
}

// Delta returns the changes since the last ResetDelta, Merge or decoding.
func (v Value) Delta() Delta { return Delta{v.c.changes()} }

// ResetDelta returns the value without its delta.
func (v Value) ResetDelta() Value { return Value{v.c.resetDelta()} }

// MergeDelta returns the value with a delta applied. The zero Delta changes nothing. The error
// matches ErrType if the delta is of another type.
func (v Value) MergeDelta(d Delta) (Value, error) {
	return v.changed(applyDelta(v.c, d.c))
}

// TakesDelta reports whether data, the output of Delta.AppendBinary, is for a value of this type.
// It reads only the type at the beginning of data.
func (v Value) TakesDelta(data []byte) bool {
	const most = 32 // the encodings of few types are longer
	e := encoder{dst: append(make([]byte, 0, most), versionDelta)}
	e.shape(v.c.shape())
	return bytes.HasPrefix(data, e.dst)
}

// ModifiedBy returns the nodes of which the value holds history, sorted.
func (v Value) ModifiedBy() []identity.Node { return modifiedBy(v.c) }

// modifiedBy returns the nodes in the history of a value: the result of its modifiedBy method, or
// all nodes to which the value refers if its type has no such method.
func modifiedBy(c core) []identity.Node {
	if h, ok := c.(interface{ modifiedBy() []identity.Node }); ok {
		return h.modifiedBy()
	}
	var t nodeTable
	c.eachNode(&t)
	return t.all()
}

// NeedsPruning reports whether the value holds history of a node.
func (v Value) NeedsPruning(removed identity.Node) bool { return v.c.needsPruning(removed) }

// Prune moves the history of a removed node to self. The meaning of the value does not change. The
// error is that of a user's type.
func (v Value) Prune(self *Self, removed identity.Node) (Value, error) {
	if !v.NeedsPruning(removed) || removed == self.node {
		return v.ResetDelta(), nil
	}
	return v.changed(v.c.pruned(self, removed))
}

// Cleanup strips the history of a removed node after another node has taken over this history by
// Prune. The error is that of a user's type.
func (v Value) Cleanup(removed identity.Node) (Value, error) {
	if !v.NeedsPruning(removed) {
		return v.ResetDelta(), nil
	}
	return v.changed(v.c.cleaned(removed))
}

// AppendBinary appends the encoded value, without its delta; Types.Decode reads it. Equal values
// have equal bytes on all nodes. The error matches ErrLimit if the value is too large, or is that
// of a user's type.
func (v Value) AppendBinary(dst []byte) ([]byte, error) { return appendBinary(dst, versionValue, v.c) }

// Equal reports whether two values have the same type and the same bytes.
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

func wrongType(want shape, got interface{ shape() shape }) error {
	if got == nil {
		return fmt.Errorf("%w: got no value, want %v", ErrType, want)
	}
	return fmt.Errorf("%w: got %v, want %v", ErrType, got.shape(), want)
}

// noHistory is embedded by types without history of nodes.
type noHistory struct{}

func (noHistory) modifiedBy() []identity.Node               { return nil }
func (noHistory) needsPruning(identity.Node) bool           { return false }
func (noHistory) pruned(*Self, identity.Node) (core, error) { return nil, nil } // never called
func (noHistory) cleaned(identity.Node) (core, error)       { return nil, nil } // never called

// noDeltas is embedded by types that replicate whole values.
type noDeltas struct{}

func (noDeltas) changes() change { return nil }
