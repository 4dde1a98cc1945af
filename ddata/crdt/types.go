// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/codec"
)

// Types is what a program adds to the data types of this package: names for Go
// types that are elements, and data types of its own. It is immutable and safe
// for concurrent use; nil adds nothing.
type Types struct {
	elements *codec.Registry
	byName   map[string]*definition
	byType   map[reflect.Type]*definition
}

// NewTypes returns a table of types. Elements names the Go types that are
// elements, keys and register values and are not of a basic kind (string,
// integer, bool, float, bytes); nil if there are none. The error joins all
// mistakes.
func NewTypes(elements *codec.Registry, own ...Definition) (*Types, error) {
	t := &Types{elements: elements, byName: make(map[string]*definition, len(own)), byType: make(map[reflect.Type]*definition, len(own))}
	errs := []error{elements.Err()}
	for _, o := range own {
		d := o.d
		switch {
		case d == nil:
			errs = append(errs, errors.New("crdt: an empty Definition: it comes from Define or DefineDelta"))
			continue
		case d.name == "" || len(d.name) > maxName:
			errs = append(errs, fmt.Errorf("crdt: type %v: its name has %d bytes, it must have 1 to %d", d.typ, len(d.name), maxName))
		case t.byName[d.name] != nil:
			errs = append(errs, fmt.Errorf("crdt: name %q stands for %v and for %v", d.name, t.byName[d.name].typ, d.typ))
		case t.byType[d.typ] != nil:
			errs = append(errs, fmt.Errorf("crdt: type %v has two names, %q and %q", d.typ, t.byType[d.typ].name, d.name))
		}
		t.byName[d.name], t.byType[d.typ] = d, d
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Types) registry() *codec.Registry {
	if t == nil {
		return nil
	}
	return t.elements
}

func (t *Types) named(name string) *definition {
	if t == nil {
		return nil
	}
	return t.byName[name]
}

// Value returns a typed value, such as an ORSet[string], as a replicator holds it.
// The error matches ErrUndefined if it is of no type of this package and not
// defined.
func (t *Types) Value(typed any) (Value, error) {
	c, err := t.core(typed)
	return Value{c}, err
}

func (t *Types) core(typed any) (core, error) {
	v, ok := typed.(interface {
		held(types *Types) (core, error)
	})
	if ok {
		return v.held(t)
	}
	d, err := t.defined(reflect.TypeOf(typed))
	if err != nil {
		return nil, err
	}
	return &own{def: d, v: typed}, nil
}

func (t *Types) defined(typ reflect.Type) (*definition, error) {
	if t != nil && t.byType[typ] != nil {
		return t.byType[typ], nil
	}
	return nil, fmt.Errorf("%w: %v: give NewTypes a Define of it", ErrUndefined, typ)
}

// As returns a value as the Go type that it has. It shares what the value holds.
// The error matches ErrType if it is of another type, and ErrUndefined as for
// Types.Value. Of the zero Value it makes the empty value of the Go type.
func As[T any](types *Types, v Value) (T, error) { return typed[T](types, v.c) }

func typed[T any](types *Types, c core) (T, error) {
	var t T
	h, ok := any(&t).(interface {
		empties
		hold(c core, types *Types, s shape) error
	})
	if ok {
		err := h.hold(c, types, h.empty(types))
		return t, err
	}
	d, err := types.defined(reflect.TypeFor[T]())
	if err != nil || c == nil {
		return t, err
	}
	if o, ok := c.(*own); ok && o.def.name == d.name {
		if t, ok = o.v.(T); ok {
			return t, nil
		}
	}
	return t, wrongType(shape{kind: kindOwn, own: d}, c)
}

// With returns a value of a type of this package that knows the types: the zero
// value of an ORSet[Product], say, before a Product is added. A replicator does
// so by itself.
func With[T any](types *Types, t T) (T, error) {
	v, err := types.Value(t)
	if err != nil {
		return t, err
	}
	return As[T](types, v)
}

// Decode reads what Value.AppendBinary wrote. It never keeps data. The error
// matches ErrMalformed, ErrLimit or ErrUndefined. What it accepts is encoded to
// the same bytes again.
func (t *Types) Decode(data []byte) (Value, error) {
	d, s, err := t.begin(data, versionValue)
	if err != nil {
		return Value{}, fmt.Errorf("crdt: decode a value: %w", err)
	}
	c := d.value(s)
	if err := d.end(); err != nil {
		return Value{}, fmt.Errorf("crdt: decode %v: %w", s.kind, err)
	}
	return Value{c}, nil
}

// DecodeDelta reads what Delta.AppendBinary wrote, as Decode.
func (t *Types) DecodeDelta(data []byte) (Delta, error) {
	d, s, err := t.begin(data, versionDelta)
	if err != nil {
		return Delta{}, fmt.Errorf("crdt: decode a delta: %w", err)
	}
	c := d.delta(s)
	if err := d.end(); err != nil {
		return Delta{}, fmt.Errorf("crdt: decode a delta of %v: %w", s.kind, err)
	}
	return Delta{c}, nil
}

// delta reads a delta of values of a shape.
func (d *decoder) delta(s shape) change {
	switch {
	case s.deltas() == NoDeltas:
		d.fail("%v has no deltas", s)
		return nil
	case s.kind == kindOwn:
		return d.ownDelta(s.own)
	case s.kind == kindORSet:
		return d.orsetDelta(s.elem)
	case s.kind.isMap():
		return d.mapDelta(s)
	}
	return whole{d.value(s)}
}
