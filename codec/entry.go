// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Entry is an entry of a registry: the result of Name, Adapt, Upcast, Split or Removed.
type Entry interface {
	register(b *builder)
}

// Type names a current Go type. Its methods return a changed copy.
type Type struct {
	typ     reflect.Type
	name    string
	version int
	aliases []string
	adapter *adapter // nil when values are stored as they are
}

// Name registers T under a name. T is normally a struct type and is decoded to a value; a pointer
// type is decoded to a pointer. The name is stored with every value, so it must never change, even
// if the Go type is renamed or moved. It has 1 to 255 bytes, and no '@', '+', '|', spaces or
// control characters.
func Name[T any](name string) Type {
	return Type{typ: reflect.TypeFor[T](), name: name, version: 1}
}

// Version sets the version that is written, 1 or higher. Defaults to 1. Every lower version needs
// an Upcast or a Split that reads it.
func (t Type) Version(version int) Type {
	t.version = version
	return t
}

// Was adds earlier names of the type. Values stored under them are read as if stored under the
// current name.
func (t Type) Was(names ...string) Type {
	t.aliases = append(slices.Clip(t.aliases), names...)
	return t
}

func (t Type) register(b *builder) {
	if t.version < 1 {
		b.errorf("%q: version %d: versions begin at 1", t.name, t.version)
		return
	}
	b.current(t)
}

type upcaster struct {
	name    string
	version int
	from    reflect.Type
	to      reflect.Type // nil for a split
	fn      func(dst []any, old any) ([]any, error)
}

// Upcast reads values of another version: they are decoded to Old and converted by f. New is a
// registered type, a type that Adapt stores, or the Old of another Upcast or Split, which then
// continues the conversion. Several old types may be converted to the same new one. If f returns a
// nil pointer, the decoding fails.
//
// The version may be higher than the current one: this release then reads values of the next release,
// see "Rolling restarts" in the package documentation.
//
// Each Old must be a separate Go type: a struct, or a named map such as "type depositedV1
// map[string]any" to access fields by name.
func Upcast[Old, New any](name string, version int, f func(Old) (New, error)) Entry {
	return newUpcaster(name, version, f)
}

func newUpcaster[Old, New any](name string, version int, f func(Old) (New, error)) upcaster {
	u := upcaster{name: name, version: version, from: reflect.TypeFor[Old](), to: reflect.TypeFor[New]()}
	if f != nil {
		u.fn = func(dst []any, old any) ([]any, error) {
			v, err := f(old.(Old)) //nolint:errcheck // decoded to Old, or found by its type
			if err != nil {
				return dst, err
			}
			return append(dst, v), nil
		}
	}
	return u
}

// Split is like Upcast, but f returns any number of values, which replace the old value in this
// order. An empty slice removes the value. A nil element is an error. The name needs no current
// type.
func Split[Old any](name string, version int, f func(Old) ([]any, error)) Entry {
	u := upcaster{name: name, version: version, from: reflect.TypeFor[Old]()}
	if f != nil {
		u.fn = func(dst []any, old any) ([]any, error) {
			vs, err := f(old.(Old)) //nolint:errcheck // decoded to Old, or found by its type
			if err != nil {
				return dst, err
			}
			return append(dst, vs...), nil
		}
	}
	return u
}

func (u upcaster) register(b *builder) {
	switch {
	case u.fn == nil:
		b.errorf("%q: the function that reads version %d is nil", u.name, u.version)
	case u.version < 1:
		b.errorf("%q: version %d: versions begin at 1", u.name, u.version)
	default:
		b.upcaster(u)
	}
}

type removed []string

// Removed declares that values stored under these names, at any version, are no longer used: such
// values decode to nothing, and their payload is not read.
func Removed(names ...string) Entry { return removed(names) }

func (r removed) register(b *builder) {
	for _, name := range r {
		b.removed(name)
	}
}

func (u upcaster) String() string { return fmt.Sprintf("%s@%d", u.name, u.version) }

const maxNameLen = 255

// manifest is stored with each payload: name[@version][+format]. Version 1 and the format msgpack
// are left out.
type manifest struct {
	name    string
	version int
	format  string
}

func (m manifest) String() string {
	s := m.name
	if m.version != 1 {
		s += "@" + strconv.Itoa(m.version)
	}
	if m.format != msgpackName {
		s += "+" + m.format
	}
	return s
}

// parseManifest parses a result of String. It rejects all other forms.
func parseManifest(s string) (manifest, bool) {
	m := manifest{name: s, version: 1, format: msgpackName}
	if name, format, found := strings.Cut(m.name, "+"); found {
		m.name, m.format = name, format
	}
	if name, version, found := strings.Cut(m.name, "@"); found {
		n, err := strconv.Atoi(version)
		if err != nil {
			return manifest{}, false
		}
		m.name, m.version = name, n
	}
	if m.version < 1 || checkName(m.name) != nil || checkName(m.format) != nil || m.String() != s {
		return manifest{}, false
	}
	return m, true
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case len(name) > maxNameLen:
		return fmt.Errorf("name %.20q... has %d bytes, more than %d", name, len(name), maxNameLen)
	case !utf8.ValidString(name):
		return fmt.Errorf("name %q is not valid UTF-8", name)
	}
	for _, c := range name {
		if strings.ContainsRune("@+|", c) || unicode.IsSpace(c) || !unicode.IsPrint(c) {
			return fmt.Errorf("name %q has the character %q", name, c)
		}
	}
	return nil
}

// adapter stores values of a type as values of another one.
type adapter struct {
	to func(v any) (any, error)
	up upcaster // from the stored type; its version is that of the type
}

// Adapt registers Domain under a name, like Name, but stores values of type Stored. Domain can then
// change freely, need not be storable, and needs no tags.
//
// to converts a Domain before it is encoded, and from converts the decoded Stored back. An error or
// a panic of to is returned by Encode: only the write of that value is rejected. A nil pointer from
// either function is an error. When the stored form changes, keep the old form as a separate Go
// type, raise Version, and add an Upcast or a Split from the old type to the new one or to Domain.
//
// The conversion is one to one. To read several values or none from one stored value, raise the
// version and use a Split.
func Adapt[Domain, Stored any](name string, to func(Domain) (Stored, error), from func(Stored) (Domain, error)) Type {
	a := &adapter{up: newUpcaster(name, 1, from)}
	if to != nil {
		a.to = func(v any) (any, error) { return to(v.(Domain)) } //nolint:errcheck // found by its type
	}
	return Type{typ: reflect.TypeFor[Domain](), name: name, version: 1, adapter: a}
}

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
			b.errorf("%q: %s is stored as %s, which is also used by %q: each needs a separate Go type", t.name, t.typ, t.stored(), other.name)
		}
	}
	for _, u := range b.upcasters {
		if u.from == t.stored() {
			b.errorf("%q: %s is stored as %s, into which %s is read: each needs a separate Go type", t.name, t.typ, t.stored(), u)
		}
	}
}
