// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/codec"
)

// Types extends the data types of this package: registered Go types for elements, and users' data
// types. It is immutable and safe for concurrent use. A nil *Types adds no types.
type Types struct {
	elements *codec.Registry
	byName   map[string]*definition
	byType   map[reflect.Type]*definition
}

// NewTypes returns a table of types. elements registers the Go types of elements, keys and register
// values that are not of a basic kind (string, integer, bool, float, bytes). It is nil if there are
// no such types. The error joins the errors of all definitions.
func NewTypes(elements *codec.Registry, own ...Definition) (*Types, error) {
	t := &Types{elements: elements, byName: make(map[string]*definition, len(own)), byType: make(map[reflect.Type]*definition, len(own))}
	errs := []error{elements.Err()}
	for _, o := range own {
		d := o.d
		switch {
		case d == nil:
			errs = append(errs, errors.New("crdt: empty Definition, use Define or DefineDelta"))
			continue
		case d.name == "" || len(d.name) > maxName:
			errs = append(errs, fmt.Errorf("crdt: type %v: name has %d bytes, want 1 to %d", d.typ, len(d.name), maxName))
		case t.byName[d.name] != nil:
			errs = append(errs, fmt.Errorf("crdt: name %q is defined for %v and for %v", d.name, t.byName[d.name].typ, d.typ))
		case t.byType[d.typ] != nil:
			errs = append(errs, fmt.Errorf("crdt: type %v is defined twice, as %q and %q", d.typ, t.byType[d.typ].name, d.name))
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

// Value converts a typed value, such as an ORSet[string], to the form that a replicator stores. The
// error matches ErrUndefined if its type is not a type of this package and has no definition in t.
func (t *Types) Value(typed any) (Value, error) {
	c, err := t.core(typed)
	return Value{c}, err
}

func (t *Types) core(typed any) (core, error) {
	v, ok := typed.(interface {
		untyped(types *Types) (core, error)
	})
	if ok {
		return v.untyped(t)
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
	return nil, fmt.Errorf("%w: %v: pass the Define of this type to NewTypes", ErrUndefined, typ)
}

// As converts a value to its Go type, without copying. The error matches ErrType if the value has
// another type, and ErrUndefined as for Types.Value. The zero Value converts to the empty value of
// the Go type.
func As[T any](types *Types, v Value) (T, error) { return typed[T](types, v.c) }

func typed[T any](types *Types, c core) (T, error) {
	var t T
	h, ok := any(&t).(interface {
		shaped
		assign(c core, types *Types, s shape) error
	})
	if ok {
		err := h.assign(c, types, h.empty(types))
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

// With returns a value of a type of this package that uses the types, for example the zero value of
// an ORSet[Product] before the first Product is added. Replicators do this automatically.
func With[T any](types *Types, t T) (T, error) {
	v, err := types.Value(t)
	if err != nil {
		return t, err
	}
	return As[T](types, v)
}

// Decode reads the output of Value.AppendBinary. It does not retain data. The error matches
// ErrMalformed, ErrLimit or ErrUndefined. Encoding the result gives the same bytes.
func (t *Types) Decode(data []byte) (Value, error) {
	d, s, err := t.begin(data, versionValue)
	if err != nil {
		return Value{}, fmt.Errorf("crdt: decode value: %w", err)
	}
	c := d.value(s)
	if err := d.end(); err != nil {
		return Value{}, fmt.Errorf("crdt: decode %v: %w", s.kind, err)
	}
	return Value{c}, nil
}

// DecodeDelta reads the output of Delta.AppendBinary, with the contract of Decode.
func (t *Types) DecodeDelta(data []byte) (Delta, error) {
	d, s, err := t.begin(data, versionDelta)
	if err != nil {
		return Delta{}, fmt.Errorf("crdt: decode delta: %w", err)
	}
	c := d.delta(s)
	if err := d.end(); err != nil {
		return Delta{}, fmt.Errorf("crdt: decode delta of %v: %w", s.kind, err)
	}
	return Delta{c}, nil
}

func (d *decoder) delta(s shape) change {
	switch {
	case s.deltas() == NoDeltas:
		d.Fail("%v has no deltas", s)
		return nil
	case s.kind == kindCustom:
		return &customDelta{s.custom, d.custom(s.custom, s.custom.delta)}
	case s.kind == kindORSet:
		return d.orsetDelta(s.elem)
	case s.kind.isMap():
		return d.mapDelta(s)
	}
	return whole{d.value(s)}
}

// kind is a data type. The numbers are part of the format.
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
	kindCustom // a user's type
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

// shape is the type of a value with its parameters. It is immutable.
type shape struct {
	kind   kind
	elem   elementKind // type of the elements, keys or register value
	of     *shape      // shape of the values of a map
	custom *definition // a user's type
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

func (s shape) empty() core {
	switch s.kind {
	case kindGCounter:
		return &counter{}
	case kindPNCounter:
		return &counter{minus: new(tallies)}
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
		return &custom{s.custom, s.custom.zero}
	case kindMap, kindMultiMap, kindMultiMapDeltas, kindCounterMap, kindRegisterMap:
	}
	typ := s // so that s itself does not escape to the heap
	return &ormap{typ: &typ, keys: &orset{elem: s.elem}}
}

var (
	// ErrType matches errors about different types: of two values in a merge, of a delta and a
	// value, or of a value and the Go type to which it is converted.
	ErrType = errors.New("crdt: type mismatch")
	// ErrUndefined matches errors about a user's type that is not in the Types in use.
	ErrUndefined = errors.New("crdt: type is not defined")
	// ErrElement matches errors about elements, keys and register values that cannot be encoded, or
	// cannot be decoded to the requested Go type.
	ErrElement = errors.New("crdt: invalid element")
	// ErrMalformed matches errors about bytes that are not a value or delta in canonical form.
	ErrMalformed = errors.New("crdt: malformed data")
	// ErrLimit matches errors about values, elements and numbers that exceed a limit.
	ErrLimit = errors.New("crdt: limit exceeded")
	// ErrClock is returned when a register already has the highest possible timestamp, so that no
	// later write is possible.
	ErrClock = errors.New("crdt: timestamp overflow")
	// ErrReplace is returned when a set is put under a map key that already holds a set: the
	// history of the old set would be lost. Use Update, or an ORMultiMap.
	ErrReplace = errors.New("crdt: cannot replace a set in a map")
)

// Limits for encoding and decoding.
const (
	// MaxSize is the maximum size of an encoded value or delta in bytes.
	MaxSize = 16 << 20
	// MaxElement is the maximum size of an encoded element, key or register value in bytes.
	MaxElement = 1 << 20
	// MaxNodes is the maximum number of nodes in one value.
	MaxNodes = 10_000

	maxDepth = 8   // nesting of types
	maxCount = 128 // bytes of the count of one node
	maxName  = 64  // bytes of the name of a user's type
)
