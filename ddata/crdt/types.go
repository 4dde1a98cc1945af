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
	return &custom{def: d, v: typed}, nil
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
		shaped
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
	if o, ok := c.(*custom); ok && o.def.name == d.name {
		if t, ok = o.v.(T); ok {
			return t, nil
		}
	}
	return t, wrongType(shape{kind: kindCustom, custom: d}, c)
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
	case s.kind == kindCustom:
		return d.customDelta(s.custom)
	case s.kind == kindORSet:
		return d.orsetDelta(s.elem)
	case s.kind.isMap():
		return d.mapDelta(s)
	}
	return whole{d.value(s)}
}

// kind is a data type. The numbers are stored.
type kind byte

const (
	kindGCounter kind = iota + 1
	kindPNCounter
	kindGSet
	kindORSet
	kindFlag
	kindRegister
	kindVersions
	kindMap
	kindMultiMap
	kindMultiMapDeltas
	kindCounterMap
	kindRegisterMap
	kindCustom // a user's
)

func (k kind) String() string {
	return [...]string{
		"nothing", "GCounter", "PNCounter", "GSet", "ORSet", "Flag", "LWWRegister", "VersionVector",
		"ORMap", "ORMultiMap", "ORMultiMap with value deltas", "PNCounterMap", "LWWMap", "custom type",
	}[k]
}

func (k kind) isMap() bool { return k >= kindMap && k <= kindRegisterMap }

func (k kind) hasElements() bool {
	return k == kindGSet || k == kindORSet || k == kindRegister || k.isMap()
}

// shape is the type of a value, with its parameters. Shapes are never changed.
type shape struct {
	kind   kind
	elem   elementKind // of the elements, keys or the register's value
	of     *shape      // of a map's values
	custom *definition // of a user's type
}

func (s shape) equal(other shape) bool {
	switch {
	case s.kind != other.kind || s.elem != other.elem:
		return false
	case s.of != other.of && (s.of == nil || other.of == nil || !s.of.equal(*other.of)):
		return false
	}
	return s.custom == other.custom || s.custom != nil && other.custom != nil && s.custom.name == other.custom.name && s.custom.typ == other.custom.typ
}

// depth returns how many levels of types there are.
func (s shape) depth() int {
	n := 1
	for ; s.of != nil; n++ {
		s = *s.of
	}
	return n
}

func (s shape) String() string {
	switch {
	case s.kind == kindCustom:
		return s.custom.name
	case s.of != nil:
		return s.kind.String() + "[" + s.elem.String() + ", " + s.of.String() + "]"
	case s.elem != 0:
		return s.kind.String() + "[" + s.elem.String() + "]"
	}
	return s.kind.String()
}

// deltas tells how values of the type spread their changes.
func (s shape) deltas() Deltas {
	switch s.kind {
	case kindGCounter, kindPNCounter, kindGSet:
		return FreeDeltas
	case kindORSet, kindMap, kindMultiMap, kindMultiMapDeltas, kindCounterMap, kindRegisterMap:
		return CausalDeltas
	case kindCustom:
		return s.custom.deltas
	case kindFlag, kindRegister, kindVersions:
	}
	return NoDeltas
}

// empty returns the value of the type that holds nothing.
func (s shape) empty() core {
	switch s.kind {
	case kindGCounter:
		return &gcounter{}
	case kindPNCounter:
		return &pncounter{}
	case kindGSet:
		return &gset{elem: s.elem}
	case kindORSet:
		return &orset{elem: s.elem}
	case kindFlag:
		return &flag{}
	case kindRegister:
		return &register{elem: s.elem}
	case kindVersions:
		return &versions{}
	case kindCustom:
		return s.custom.zero()
	case kindMap, kindMultiMap, kindMultiMapDeltas, kindCounterMap, kindRegisterMap:
	}
	typ := s // so that s itself takes no memory on the heap
	return &ormap{typ: &typ, keys: &orset{elem: s.elem}}
}
