// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import "reflect"

// adapter stores values of a type as values of another one.
type adapter struct {
	to func(v any) (any, error)
	up upcaster // from the stored type, without its name and version
}

// Adapt registers Domain under a name, like Name, but stores values of type Stored. Domain can then
// change freely, need not be storable, and needs no tags.
//
// to converts a Domain before it is encoded, and from converts the decoded Stored back. An error or
// a panic of to is returned by Encode: only the write of that value is rejected. A nil pointer from
// either function is an error. When the stored form changes, the old form becomes a Go type of its
// own, Version is raised, and Upcast or Split convert from the old type to the new one or to
// Domain.
//
// The conversion is one to one. To read several values or none from one stored value, raise the
// version and use a Split.
func Adapt[Domain, Stored any](name string, to func(Domain) (Stored, error), from func(Stored) (Domain, error)) Type {
	a := &adapter{up: upcaster{from: reflect.TypeFor[Stored](), to: reflect.TypeFor[Domain]()}}
	if to != nil {
		a.to = func(v any) (any, error) { return to(v.(Domain)) } //nolint:errcheck // found by its type
	}
	if from != nil {
		a.up.fn = func(dst []any, stored any) ([]any, error) {
			v, err := from(stored.(Stored)) //nolint:errcheck // decoded to Stored, or found by its type
			if err != nil {
				return dst, err
			}
			return append(dst, v), nil
		}
	}
	return Type{typ: reflect.TypeFor[Domain](), name: name, version: 1, adapter: a}
}

// stored returns the Go type whose values are stored.
func (t *Type) stored() reflect.Type {
	if t.adapter != nil {
		return t.adapter.up.from
	}
	return t.typ
}

// adapted checks a type that is stored as another one.
func (b *builder) adapted(t *Type) {
	a := t.adapter
	switch {
	case a == nil:
		return
	case a.to == nil || a.up.fn == nil:
		b.errorf("%q: a function that adapts %s is nil", t.name, t.typ)
	case t.stored() == t.typ:
		b.errorf("%q: %s is adapted to itself: use Name", t.name, t.typ)
	case t.stored().Kind() == reflect.Interface:
		b.errorf("%q: %s is stored as %s, which is an interface", t.name, t.typ, t.stored())
	}
	for i := range b.types {
		other := &b.types[i]
		if other.name != t.name && (other.typ == t.stored() || other.stored() == t.stored()) {
			b.errorf("%q: %s is stored as %s, which is also used by %q: each needs a Go type of its own", t.name, t.typ, t.stored(), other.name)
		}
	}
	for _, u := range b.upcasters {
		if u.from == t.stored() {
			b.errorf("%q: %s is stored as %s, into which %s is read: each needs a Go type of its own", t.name, t.typ, t.stored(), u)
		}
	}
}
