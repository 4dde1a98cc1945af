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

// custom is a value of a user's type.
type custom struct {
	def *definition
	v   any
}

func (o *custom) shape() shape        { return shape{kind: kindCustom, custom: o.def} }
func (o *custom) eachNode(*nodeTable) {}

func (o *custom) merge(other core) (core, error) {
	b, err := same(o, other)
	if err != nil {
		return nil, err
	}
	return o.change("merge", func() (any, error) { return o.def.merge(o.v, b.v) })
}

// change returns the result of f as a value without a delta.
func (o *custom) change(doing string, f func() (any, error)) (core, error) {
	next := &custom{def: o.def}
	err := catchPanic(o.def, doing, func() error {
		v, err := f()
		if err == nil {
			next.v = o.def.resetDelta(v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

func (o *custom) changes() change {
	d := &customDelta{def: o.def}
	var some bool
	if err := catchPanic(o.def, "take the delta of", func() error { d.d, some = o.def.delta(o.v); return nil }); err != nil || !some {
		return nil
	}
	return d
}

func (o *custom) resetDelta() core {
	next := &custom{def: o.def}
	if err := catchPanic(o.def, "reset the delta of", func() error { next.v = o.def.resetDelta(o.v); return nil }); err != nil {
		return o
	}
	return next
}

func (o *custom) applyDelta(d change) (core, error) {
	od, err := sameChange[*customDelta](o.shape(), d)
	if err != nil {
		return nil, err
	}
	return o.change("merge a delta of", func() (any, error) { return o.def.mergeDelta(o.v, od.d) })
}

func (o *custom) modifiedBy() (nodes []identity.Node) {
	if err := catchPanic(o.def, "find the nodes of", func() error { nodes = o.def.modifiedBy(o.v); return nil }); err != nil {
		return nil
	}
	return nodes
}

func (o *custom) needsPruning(removed identity.Node) (needs bool) {
	if err := catchPanic(o.def, "find the nodes of", func() error { needs = o.def.needsPruning(o.v, removed); return nil }); err != nil {
		return false
	}
	return needs
}

func (o *custom) pruned(self *Self, removed identity.Node) (core, error) {
	if !o.needsPruning(removed) {
		return o.resetDelta(), nil
	}
	return o.change("prune", func() (any, error) { return o.def.prune(o.v, self, removed) })
}

func (o *custom) cleaned(removed identity.Node) (core, error) {
	return o.change("clean up", func() (any, error) { return o.def.cleanup(o.v, removed) })
}

func (o *custom) encode(e *encoder) {
	e.custom(o.def, func() ([]byte, error) { return o.def.appendTo(o.v, nil) })
}

// custom appends the bytes that a user's type encodes itself to.
func (e *encoder) custom(def *definition, write func() ([]byte, error)) {
	var data []byte
	err := catchPanic(def, "encode", func() (err error) { data, err = write(); return err })
	if err != nil && e.err == nil {
		e.err = err
	}
	e.bytes(data)
}

func (d *decoder) checkCustom(def *definition, data []byte, read func() error, write func() ([]byte, error)) {
	if d.err != nil {
		return
	}
	before := bytes.Clone(data)
	err := catchPanic(def, "decode", read)
	if err == nil { // only the canonical form is accepted
		var again []byte
		if again, err = write(); err == nil && !bytes.Equal(again, before) {
			err = errors.New("not in canonical form")
		}
	}
	if err != nil {
		d.failed(fmt.Errorf("%w: %s: %w", ErrMalformed, def.name, err))
	}
}

func (d *decoder) customValue(def *definition) core {
	data := d.bytes(MaxSize, "value")
	o := &custom{def: def}
	d.checkCustom(def, data, func() (err error) { o.v, err = def.decode(data); return err },
		func() ([]byte, error) { return def.appendTo(o.v, nil) })
	return o
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
// cluster. The methods have the contracts of those of Value.
type Prunable[T any] interface {
	ModifiedBy() []identity.Node
	NeedsPruning(removed identity.Node) bool
	Prune(self *Self, removed identity.Node) (T, error)
	Cleanup(removed identity.Node) (T, error)
}

// Definition describes a user's type for NewTypes. Create one with Define or DefineDelta.
type Definition struct{ d *definition }

// definition is a user's type.
type definition struct {
	name   string
	typ    reflect.Type
	deltas Deltas
	ops
}

// ops are the methods of a user's type without type parameters. User code may panic, so callers
// wrap these methods in catchPanic.
type ops interface {
	empty() any
	merge(a, b any) (any, error)
	appendTo(v any, dst []byte) ([]byte, error)
	decode(data []byte) (any, error)

	modifiedBy(v any) []identity.Node
	needsPruning(v any, n identity.Node) bool
	prune(v any, self *Self, n identity.Node) (any, error)
	cleanup(v any, n identity.Node) (any, error)

	delta(v any) (any, bool)
	mergeDelta(v, d any) (any, error)
	resetDelta(v any) any
	opCount(d any) int
	mergeDeltas(a, b any) (any, error)
	appendDelta(d any, dst []byte) ([]byte, error)
	decodeDelta(data []byte) (any, error)
}

func (d *definition) zero() core { return &custom{def: d, v: d.empty()} }

// Define defines a data type. The name is part of the encoded data and must never change. decode
// reads the output of AppendBinary. It must not retain data, must check its own limits before it
// allocates, and must reject data that AppendBinary would not write. If T implements Prunable, its
// history is pruned.
func Define[T Data[T]](name string, decode func(data []byte) (T, error)) Definition {
	return Definition{&definition{name: name, typ: reflect.TypeFor[T](), ops: dataOps[T]{read: decode}}}
}

// dataOps are the ops of a type without deltas.
type dataOps[T Data[T]] struct {
	noDeltas
	read func(data []byte) (T, error)
}

// as converts a value whose dynamic type is T.
func as[T any](v any) T {
	t, _ := v.(T)
	return t
}

func (dataOps[T]) empty() any { return as[T](nil) }

func (dataOps[T]) merge(a, b any) (any, error) { return as[T](a).Merge(as[T](b)) }

func (dataOps[T]) appendTo(v any, dst []byte) ([]byte, error) { return as[T](v).AppendBinary(dst) }

func (o dataOps[T]) decode(data []byte) (any, error) { return o.read(data) }

func (dataOps[T]) modifiedBy(v any) []identity.Node {
	if p, ok := v.(Prunable[T]); ok {
		return p.ModifiedBy()
	}
	return nil
}

func (dataOps[T]) needsPruning(v any, n identity.Node) bool {
	p, ok := v.(Prunable[T])
	return ok && p.NeedsPruning(n)
}

func (dataOps[T]) prune(v any, self *Self, n identity.Node) (any, error) {
	if p, ok := v.(Prunable[T]); ok {
		return p.Prune(self, n)
	}
	return v, nil
}

func (dataOps[T]) cleanup(v any, n identity.Node) (any, error) {
	if p, ok := v.(Prunable[T]); ok {
		return p.Cleanup(n)
	}
	return v, nil
}

// noDeltas are the ops of a type without deltas. Only delta and resetDelta are called.
type noDeltas struct{}

func (noDeltas) delta(any) (any, bool)                   { return nil, false }
func (noDeltas) resetDelta(v any) any                    { return v }
func (noDeltas) mergeDelta(any, any) (any, error)        { return nil, ErrType }
func (noDeltas) opCount(any) int                         { return 0 }
func (noDeltas) mergeDeltas(any, any) (any, error)       { return nil, ErrType }
func (noDeltas) appendDelta(any, []byte) ([]byte, error) { return nil, ErrType }
func (noDeltas) decodeDelta([]byte) (any, error)         { return nil, ErrType }

// DefineDelta is Define for a type with deltas. how is FreeDeltas or CausalDeltas: whether deltas
// may arrive in any order. If D has a method Ops() int, it returns the number of operations in a
// delta. decodeDelta reads the output of D.AppendBinary. For a type that is composed of types of
// this package, make D a struct of their Deltas.
func DefineDelta[T DeltaData[T, D], D Data[D]](name string, how Deltas,
	decode func(data []byte) (T, error), decodeDelta func(data []byte) (D, error),
) Definition {
	return Definition{&definition{
		name: name, typ: reflect.TypeFor[T](), deltas: max(how, FreeDeltas),
		ops: deltaOps[T, D]{dataOps: dataOps[T]{read: decode}, readDelta: decodeDelta},
	}}
}

// deltaOps are the ops of a type with deltas.
type deltaOps[T DeltaData[T, D], D Data[D]] struct {
	dataOps[T]
	readDelta func(data []byte) (D, error)
}

func (deltaOps[T, D]) delta(v any) (any, bool) { return as[T](v).Delta() }

func (deltaOps[T, D]) resetDelta(v any) any { return as[T](v).ResetDelta() }

func (deltaOps[T, D]) mergeDelta(v, d any) (any, error) { return as[T](v).MergeDelta(as[D](d)) }

func (deltaOps[T, D]) opCount(d any) int {
	if o, ok := d.(interface{ Ops() int }); ok {
		return o.Ops()
	}
	return 0
}

func (deltaOps[T, D]) mergeDeltas(a, b any) (any, error) { return as[D](a).Merge(as[D](b)) }

func (deltaOps[T, D]) appendDelta(d any, dst []byte) ([]byte, error) {
	return as[D](d).AppendBinary(dst)
}

func (o deltaOps[T, D]) decodeDelta(data []byte) (any, error) { return o.readDelta(data) }

// customDelta is a delta of a user's type.
type customDelta struct {
	def *definition
	d   any
}

func (d *customDelta) shape() shape        { return shape{kind: kindCustom, custom: d.def} }
func (d *customDelta) eachNode(*nodeTable) {}

func (d *customDelta) opCount() (n int) {
	if err := catchPanic(d.def, "count the operations of", func() error { n = d.def.opCount(d.d); return nil }); err != nil {
		return 0
	}
	return n
}

func (d *customDelta) encode(e *encoder) {
	e.custom(d.def, func() ([]byte, error) { return d.def.appendDelta(d.d, nil) })
}

func (d *customDelta) then(later change) (change, error) {
	l, err := sameChange[*customDelta](d.shape(), later)
	if err != nil {
		return nil, err
	}
	m := &customDelta{def: d.def}
	err = catchPanic(d.def, "merge deltas of", func() error { m.d, err = d.def.mergeDeltas(d.d, l.d); return err })
	return m, err
}

func (d *decoder) customDelta(def *definition) change {
	data := d.bytes(MaxSize, "delta")
	m := &customDelta{def: def}
	d.checkCustom(def, data, func() (err error) { m.d, err = def.decodeDelta(data); return err },
		func() ([]byte, error) { return def.appendDelta(m.d, nil) })
	return m
}

// catchPanic calls user code and converts a panic into an error.
func catchPanic(def *definition, doing string, f func() error) error {
	if err := panics.Catch(f); err != nil {
		return fmt.Errorf("crdt: %s %s: %w", doing, def.name, err)
	}
	return nil
}
