// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
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
type empties interface {
	empty(types *Types) shape
}

func (h handle[T]) zero(types *Types) (shape, error) {
	var t T
	if e, ok := any(t).(empties); ok {
		if s := e.empty(types); s.kind != 0 {
			return s, nil
		}
	}
	return shape{}, fmt.Errorf("%w: %v: give NewTypes a Define of what it holds", ErrUndefined, reflect.TypeFor[T]())
}

// held returns the value without its type parameters. Types are those of the
// value itself, if it has some.
func (h handle[T]) held(types *Types) (core, error) {
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
func (h *handle[T]) hold(v core, types *Types, s shape) error {
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
	a, err := h.held(nil)
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
	a, err := h.held(nil)
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
	a, err := h.held(nil)
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
	v, err := h.held(nil)
	if err != nil {
		return nil, err
	}
	return Value{v}.AppendBinary(dst)
}
