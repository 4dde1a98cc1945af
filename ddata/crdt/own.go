// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"reflect"

	"github.com/refold-io/refold/identity"
)

// Data is what a data type can do: values are immutable, merge is commutative,
// associative and idempotent, and the same value has the same bytes. All types of
// this package are Data, and so are users' own; package crdttest checks the laws.
// The zero value of T is the empty value.
type Data[T any] interface {
	// Merge returns what both values know.
	Merge(other T) (T, error)
	// AppendBinary appends the encoded value.
	AppendBinary(dst []byte) ([]byte, error)
}

// DeltaData is Data whose changes spread by themselves. D may be T, and it may be
// Delta for what is made of the types of this package.
type DeltaData[T, D any] interface {
	Data[T]
	// Delta returns what was changed since ResetDelta, and whether that is
	// something. What Merge, MergeDelta and decoding return has no delta.
	Delta() (D, bool)
	// MergeDelta returns the value with what a delta tells.
	MergeDelta(d D) (T, error)
	// ResetDelta returns the value without its delta.
	ResetDelta() T
}

// Prunable is Data that holds history of nodes, and that can forget the nodes that
// have left. The methods are those of Value.
type Prunable[T any] interface {
	ModifiedBy() []identity.Node
	NeedsPruning(removed identity.Node) bool
	Prune(self *Self, removed identity.Node) (T, error)
	Cleanup(removed identity.Node) (T, error)
}

// Definition makes a type of one's own known to Types. It comes from Define or
// DefineDelta.
type Definition struct{ d *definition }

// definition is a type of the user's.
type definition struct {
	name   string
	typ    reflect.Type
	deltas Deltas
	ops
}

// ops is what a user's type can do, without its type parameters. What it calls
// is not ours and may panic: own guards it.
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

func (d *definition) zero() core { return &own{def: d, v: d.empty()} }

// Define defines a data type of one's own. The name is stored, so it must never
// change. Decode reads what AppendBinary wrote; it must not keep data, sets its
// own limits before it allocates, and refuses what AppendBinary would not write.
// If T is Prunable, its history is pruned.
func Define[T Data[T]](name string, decode func(data []byte) (T, error)) Definition {
	return Definition{&definition{name: name, typ: reflect.TypeFor[T](), ops: dataOps[T]{read: decode}}}
}

// dataOps are the ops of a type without deltas.
type dataOps[T Data[T]] struct {
	noDeltas
	read func(data []byte) (T, error)
}

// as returns what is known to be a T: own holds nothing else.
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
