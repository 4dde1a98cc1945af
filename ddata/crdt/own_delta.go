// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"fmt"
	"reflect"
)

// noDeltas are the ops of a type that has none. But for delta and resetDelta they
// are not called.
type noDeltas struct{}

func (noDeltas) delta(any) (any, bool)                   { return nil, false }
func (noDeltas) resetDelta(v any) any                    { return v }
func (noDeltas) mergeDelta(any, any) (any, error)        { return nil, ErrType }
func (noDeltas) opCount(any) int                         { return 0 }
func (noDeltas) mergeDeltas(any, any) (any, error)       { return nil, ErrType }
func (noDeltas) appendDelta(any, []byte) ([]byte, error) { return nil, ErrType }
func (noDeltas) decodeDelta([]byte) (any, error)         { return nil, ErrType }

// DefineDelta is Define for a type whose changes spread by themselves. How is
// FreeDeltas or CausalDeltas: whether deltas may arrive in any order. If D has a
// method Ops() int, that is how many steps it takes to apply one. DecodeDelta
// reads what AppendBinary of a D wrote. For a type made of those of this package,
// D is best a struct of their Deltas.
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

// ownDelta is a delta of a user's type.
type ownDelta struct {
	def *definition
	d   any
}

func (d *ownDelta) shape() shape        { return shape{kind: kindOwn, own: d.def} }
func (d *ownDelta) eachNode(*nodeTable) {}

func (d *ownDelta) opCount() (n int) {
	if err := guard(d.def, "count the steps of", func() error { n = d.def.opCount(d.d); return nil }); err != nil {
		return 0
	}
	return n
}

func (d *ownDelta) encode(e *encoder) {
	e.own(d.def, func() ([]byte, error) { return d.def.appendDelta(d.d, nil) })
}

func (d *ownDelta) then(later change) (change, error) {
	l, err := sameChange[*ownDelta](d.shape(), later)
	if err != nil {
		return nil, err
	}
	m := &ownDelta{def: d.def}
	err = guard(d.def, "merge deltas of", func() error { m.d, err = d.def.mergeDeltas(d.d, l.d); return err })
	return m, err
}

func (d *decoder) ownDelta(def *definition) change {
	data := d.bytes(MaxSize, "delta")
	m := &ownDelta{def: def}
	d.own(def, data, func() (err error) { m.d, err = def.decodeDelta(data); return err },
		func() ([]byte, error) { return def.appendDelta(m.d, nil) })
	return m
}

// guard calls what is not ours, and makes an error of a panic.
func guard(def *definition, doing string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("crdt: %s %s: panic: %v", doing, def.name, p)
		}
	}()
	if err := f(); err != nil {
		return fmt.Errorf("crdt: %s %s: %w", doing, def.name, err)
	}
	return nil
}
