// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import "reflect"

// adapter stores values of a type as values of another one.
type adapter struct {
	to func(v any) (any, error)
	up upcaster // from the stored type, without its name and version
}

// Adapt registers Domain under a name, as Name does, but what is stored is a
// Stored: so the type that the program works with can change freely, need not
// be one that can be stored, and stays clear of tags.
//
// To makes what is stored when a Domain is encoded, and from makes a Domain of it
// when it is read. An error or a panic of to is that of Encode: the write of that
// value is rejected, and no other. A nil pointer, from either function, is an
// error too. When the stored form changes it becomes a Go
// type of its own, with Version, and Upcast or Split lead from the old one to the
// new one, or to Domain.
//
// It is read one to one. To make several values of one, or none, raise the
// version and read what is stored with a Split.
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

// stored is the Go type whose values are stored.
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
			b.errorf("%q: %s is stored as %s, which %q has already: each needs a Go type of its own", t.name, t.typ, t.stored(), other.name)
		}
	}
	for _, u := range b.upcasters {
		if u.from == t.stored() {
			b.errorf("%q: %s is stored as %s, into which %s is read: each needs a Go type of its own", t.name, t.typ, t.stored(), u)
		}
	}
}
