// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// builder collects the entries of a registry and all errors in them.
type builder struct {
	reg   *Registry
	names map[string]string // maps a name to its purpose, to find duplicates
	errs  []error

	types     []Type
	upcasters []upcaster
}

func (b *builder) errorf(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

func (b *builder) claim(name, purpose string) bool {
	if err := checkName(name); err != nil {
		b.errorf("%w", err)
		return false
	}
	if before, taken := b.names[name]; taken {
		b.errorf("name %q is used for %s and for %s", name, before, purpose)
		return false
	}
	b.names[name] = purpose
	return true
}

func (b *builder) current(t Type) {
	if t.typ.Kind() == reflect.Interface {
		b.errorf("%q: %s is an interface: name the types that implement it instead", t.name, t.typ)
		return
	}
	purpose := t.typ.String()
	if !b.claim(t.name, purpose) {
		return
	}
	for _, alias := range t.aliases {
		if !b.claim(alias, purpose) {
			return
		}
	}
	for _, other := range b.types {
		if other.typ == t.typ {
			b.errorf("%s has two names, %q and %q: add an earlier name with Was", t.typ, other.name, t.name)
			return
		}
	}
	b.types = append(b.types, t)
}

func (b *builder) upcaster(u upcaster) {
	if err := checkName(u.name); err != nil {
		b.errorf("%w", err)
		return
	}
	for _, other := range b.upcasters {
		if other.name == u.name && other.version == u.version {
			b.errorf("%s is read by two functions", u)
			return
		}
		if other.from == u.from {
			b.errorf("%s and %s are both decoded into %s: each needs a separate Go type", other, u, u.from)
			return
		}
	}
	b.upcasters = append(b.upcasters, u)
}

func (b *builder) removed(name string) {
	if b.claim(name, "a removed type") {
		b.reg.removed[name] = struct{}{}
	}
}

func (b *builder) link() {
	for _, u := range b.upcasters {
		b.linkUpcaster(u)
	}
	for i := range b.types {
		t := &b.types[i]
		b.adapted(t)
		for v := 1; v < t.version; v++ {
			if !b.reads(t.name, v) {
				b.errorf("the current version of %q is %d, but no function reads version %d: add an Upcast or a Split", t.name, t.version, v)
			}
		}
	}
}

func (b *builder) linkUpcaster(u upcaster) {
	current := 0
	for _, t := range b.types {
		if t.typ == u.from {
			b.errorf("%s is read into %s, which is the current type of %q", u, u.from, t.name)
		}
		if t.name == u.name {
			current = t.version
		}
		if slices.Contains(t.aliases, u.name) {
			b.errorf("%s has a function under an earlier name: use the current name %q", u, t.name)
		}
	}
	if _, gone := b.reg.removed[u.name]; gone {
		b.errorf("%s has a function that reads it, but %q is removed", u, u.name)
	}
	if u.version == current {
		b.errorf("%s has a function that reads it, but %[1]s is the current version", u)
	}
	if u.to == nil {
		return
	}
	for i := range b.types {
		if t := &b.types[i]; t.typ == u.to || t.stored() == u.to {
			return
		}
	}
	for _, next := range b.upcasters {
		if next.from == u.to {
			if next.name == u.name && next.version <= u.version {
				b.errorf("%s is converted to %s, which is not a later version", u, next)
			}
			return
		}
	}
	b.errorf("%s is converted to %s, which has no name and no function that converts it further", u, u.to)
}

func (b *builder) reads(name string, version int) bool {
	return slices.ContainsFunc(b.upcasters, func(u upcaster) bool { return u.name == name && u.version == version })
}

// build creates the registry and its lookup tables. It creates one reader for each manifest that
// can occur, so that a lookup is one map access.
func build(entries []Entry, write Format, read []Format) *Registry {
	r := &Registry{
		entries:   entries,
		write:     write,
		writers:   map[reflect.Type]*writer{},
		readers:   map[string]*reader{},
		removed:   map[string]struct{}{},
		upcasters: map[reflect.Type]*upcaster{},
		plans:     &plans{},
		writeName: msgpackName,
	}
	b := &builder{reg: r, names: map[string]string{}}
	formats := b.formats(write, read)
	for _, e := range entries {
		if e == nil {
			b.errorf("an entry is nil")
			continue
		}
		e.register(b)
	}
	b.link()
	for _, t := range b.types {
		b.addCurrent(t, formats)
	}
	for i := range b.upcasters {
		b.addOld(&b.upcasters[i], formats)
	}
	if len(b.errs) > 0 {
		r.err = fmt.Errorf("codec: %w", errors.Join(b.errs...))
	}
	return r
}

// formats returns the formats that can be read, by name. Msgpack is represented by nil.
func (b *builder) formats(write Format, read []Format) map[string]Format {
	all, given := map[string]Format{msgpackName: nil, jsonName: JSON()}, map[string]bool{}
	if write != nil {
		b.reg.writeName = write.Name()
		read = append(slices.Clip(read), write)
	}
	for _, f := range read {
		if f == nil {
			b.errorf("a format is nil")
			continue
		}
		name := f.Name()
		if err := checkName(name); err != nil {
			b.errorf("format: %w", err)
			continue
		}
		if name == msgpackName {
			b.errorf("format %q can't be replaced", name)
			continue
		}
		if given[name] {
			b.errorf("two formats have the name %q", name)
		}
		given[name] = true
		all[name] = f
	}
	return all
}

func (b *builder) addCurrent(t Type, formats map[string]Format) {
	p, err := b.reg.plans.compile(t.stored())
	if err != nil && b.reg.write == nil {
		b.errorf("%q: %w", t.name, err)
	}
	w := &writer{manifest: manifest{t.name, t.version, b.reg.writeName}.String(), plan: p}
	b.reg.writers[t.typ] = w
	var up *upcaster
	if t.adapter != nil {
		own := t.adapter.up
		own.version = t.version
		up = &own
		b.reg.upcasters[own.from] = up
		w.to = t.adapter.to
	}
	b.addReaders(formats, append([]string{t.name}, t.aliases...), t.version, reader{typ: t.stored(), plan: p, planErr: err, up: up})
}

// addReaders adds the readers of one version under all names, one reader for each format.
func (b *builder) addReaders(formats map[string]Format, names []string, version int, r reader) {
	for format, f := range formats {
		rd := r
		rd.format = f
		for _, name := range names {
			b.reg.readers[manifest{name, version, format}.String()] = &rd
		}
	}
}

func (b *builder) addOld(u *upcaster, formats map[string]Format) {
	p, err := b.reg.plans.compile(u.from)
	if err != nil && b.reg.write == nil {
		b.errorf("%s: %w", u, err)
	}
	b.reg.upcasters[u.from] = u
	names := []string{u.name}
	for _, t := range b.types {
		if t.name == u.name {
			names = append(names, t.aliases...)
		}
	}
	b.addReaders(formats, names, u.version, reader{typ: u.from, plan: p, planErr: err, up: u})
}
