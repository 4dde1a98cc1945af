// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/panics"
)

type custom struct {
	def *definition
	v   any
}

func (o *custom) shape() shape        { return shape{kind: kindCustom, custom: o.def} }
func (o *custom) eachNode(*nodeTable) {}
func (o *custom) encode(e *encoder)   { e.custom(o.def, o.def.value, o.v) }
func (o *custom) decode(d *decoder)   { o.v = d.custom(o.def, o.def.value) }

func (o *custom) merge(other core) (core, error) {
	b, _ := other.(*custom)
	return o.change("merge", func() (any, error) { return o.def.value.merge(o.v, b.v) })
}

func (o *custom) change(doing string, f func() (any, error)) (core, error) {
	next := &custom{def: o.def}
	err := catchPanic(o.def, doing, func() error {
		v, err := f()
		if err == nil {
			next.v = o.def.reset(v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

func (o *custom) changes() change {
	return orIfPanic(nil, func() change {
		if d, some := o.def.take(o.v); some {
			return &customDelta{o.def, d}
		}
		return nil
	})
}

func (o *custom) resetDelta() core {
	return orIfPanic[core](o, func() core { return &custom{o.def, o.def.reset(o.v)} })
}

func (o *custom) modifiedBy() []identity.Node {
	h, _ := o.v.(interface{ ModifiedBy() []identity.Node })
	if h == nil || o.def.prune == nil {
		return nil
	}
	return orIfPanic(nil, h.ModifiedBy)
}

func (o *custom) needsPruning(removed identity.Node) bool {
	h, _ := o.v.(interface{ NeedsPruning(identity.Node) bool })
	return h != nil && o.def.prune != nil && orIfPanic(false, func() bool { return h.NeedsPruning(removed) })
}

func (o *custom) pruned(self *Self, removed identity.Node) (core, error) {
	return o.change("prune", func() (any, error) { return o.def.prune(o.v, self, removed) })
}

func (o *custom) cleaned(removed identity.Node) (core, error) {
	return o.change("clean up", func() (any, error) { return o.def.cleanup(o.v, removed) })
}

func (e *encoder) custom(def *definition, o ops, v any) {
	var data []byte
	err := catchPanic(def, "encode", func() (err error) { data, err = o.appendTo(v, nil); return err })
	if err != nil && e.err == nil {
		e.err = err
	}
	e.bytes(data)
}

// custom decodes a value or a delta of a user's type. Only the canonical form is accepted.
func (d *decoder) custom(def *definition, o ops) (v any) {
	data := d.Text(MaxSize, "value")
	if d.Err() != nil {
		return nil
	}
	before := bytes.Clone(data)
	err := catchPanic(def, "decode", func() (err error) {
		if v, err = o.decode(data); err != nil {
			return err
		}
		again, err := o.appendTo(v, nil)
		if err == nil && !bytes.Equal(again, before) {
			err = errors.New("not in canonical form")
		}
		return err
	})
	if err != nil {
		d.SetErr(fmt.Errorf("%w: %s: %w", ErrMalformed, def.name, err))
	}
	return v
}

// Data is the interface of a data type: values are immutable, Merge is commutative, associative and
// idempotent, and equal values have equal bytes. All types of this package implement Data, and
// users can define their own; package crdttest checks the laws. The zero value of T is the empty
// value.
type Data[T any] interface {
	// Merge returns the merge of both values.
	Merge(other T) (T, error)
	// AppendBinary appends the encoded value.
	AppendBinary(dst []byte) ([]byte, error)
}

// DeltaData is Data with deltas: replicators send changes instead of whole values. D may be T
// itself, or Delta for a type that is composed of the types of this package.
type DeltaData[T, D any] interface {
	Data[T]
	// Delta returns the changes since the last ResetDelta, and whether there are any. Results of
	// Merge, MergeDelta and decoding have no delta.
	Delta() (D, bool)
	// MergeDelta returns the value with a delta applied.
	MergeDelta(d D) (T, error)
	// ResetDelta returns the value without its delta.
	ResetDelta() T
}

// Prunable is Data that keeps history per node and can forget the history of nodes that left the
// cluster. The methods have the same contracts as the methods of Value.
type Prunable[T any] interface {
	ModifiedBy() []identity.Node
	NeedsPruning(removed identity.Node) bool
	Prune(self *Self, removed identity.Node) (T, error)
	Cleanup(removed identity.Node) (T, error)
}

// Definition describes a user's type for NewTypes. Create one with Define or DefineDelta.
type Definition struct{ d *definition }

// definition is a user's type. Its functions and the methods of its ops are user code and may panic. Callers therefore wrap them in catchPanic.
type definition struct {
	name         string
	typ          reflect.Type
	deltas       Deltas
	zero         any
	value, delta ops // delta is nil if the type has no deltas

	// prune and cleanup are nil unless the type is Prunable.
	prune   func(v any, self *Self, n identity.Node) (any, error)
	cleanup func(v any, n identity.Node) (any, error)

	take  func(v any) (any, bool) // returns the delta of a value
	apply func(v, d any) (any, error)
	reset func(v any) any
}

// ops are the methods of a user's value or delta without type parameters.
type ops interface {
	merge(a, b any) (any, error)
	appendTo(v any, dst []byte) ([]byte, error)
	decode(data []byte) (any, error)
}

type typedOps[T Data[T]] struct {
	read func(data []byte) (T, error)
}

func as[T any](v any) T {
	t, _ := v.(T)
	return t
}

func (typedOps[T]) merge(a, b any) (any, error) { return as[T](a).Merge(as[T](b)) }

func (typedOps[T]) appendTo(v any, dst []byte) ([]byte, error) { return as[T](v).AppendBinary(dst) }

func (o typedOps[T]) decode(data []byte) (any, error) { return o.read(data) }

// Define defines a data type. The name is part of the encoded data and must never change. decode
// reads the output of AppendBinary. It must not retain data, must check its own limits before it
// allocates, and must reject data that AppendBinary would not write. If T implements Prunable, its
// history is pruned.
func Define[T Data[T]](name string, decode func(data []byte) (T, error)) Definition {
	d := &definition{
		name: name, typ: reflect.TypeFor[T](), zero: as[T](nil), value: typedOps[T]{decode},
		take: func(any) (any, bool) { return nil, false }, reset: func(v any) any { return v },
	}
	if reflect.TypeFor[T]().Implements(reflect.TypeFor[Prunable[T]]()) {
		d.prune = func(v any, self *Self, n identity.Node) (any, error) { return as[Prunable[T]](v).Prune(self, n) }
		d.cleanup = func(v any, n identity.Node) (any, error) { return as[Prunable[T]](v).Cleanup(n) }
	}
	return Definition{d}
}

// DefineDelta is Define for a type with deltas. how is FreeDeltas if deltas may arrive in any
// order, and CausalDeltas otherwise. If D has a method Ops() int, its result is the number of
// operations in the delta. decodeDelta reads the output of D.AppendBinary. For a type that is
// composed of types of this package, make D a struct of their Deltas.
func DefineDelta[T DeltaData[T, D], D Data[D]](name string, how Deltas,
	decode func(data []byte) (T, error), decodeDelta func(data []byte) (D, error),
) Definition {
	d := Define(name, decode).d
	d.deltas, d.delta = max(how, FreeDeltas), typedOps[D]{decodeDelta}
	d.take = func(v any) (any, bool) { return as[T](v).Delta() }
	d.apply = func(v, d any) (any, error) { return as[T](v).MergeDelta(as[D](d)) }
	d.reset = func(v any) any { return as[T](v).ResetDelta() }
	return Definition{d}
}

type customDelta struct {
	def *definition
	d   any
}

func (d *customDelta) shape() shape        { return shape{kind: kindCustom, custom: d.def} }
func (d *customDelta) eachNode(*nodeTable) {}
func (d *customDelta) encode(e *encoder)   { e.custom(d.def, d.def.delta, d.d) }

func (d *customDelta) opCount() int {
	o, _ := d.d.(interface{ Ops() int })
	if o == nil {
		return 0
	}
	return orIfPanic(0, o.Ops)
}

func (d *customDelta) applyTo(c core) (core, error) {
	o, _ := c.(*custom)
	return o.change("merge a delta of", func() (any, error) { return d.def.apply(o.v, d.d) })
}

func (d *customDelta) then(later change) (change, error) {
	l, _ := later.(*customDelta)
	m := &customDelta{def: d.def}
	err := catchPanic(d.def, "merge deltas of", func() (err error) { m.d, err = d.def.delta.merge(d.d, l.d); return err })
	return m, err
}

func catchPanic(def *definition, doing string, f func() error) error {
	if err := panics.Catch(f); err != nil {
		return fmt.Errorf("crdt: %s %s: %w", doing, def.name, err)
	}
	return nil
}

// orIfPanic returns the result of f, which is user code, or other if f panics.
func orIfPanic[V any](other V, f func() V) (v V) {
	if err := panics.Catch(func() error { v = f(); return nil }); err != nil {
		return other
	}
	return v
}
