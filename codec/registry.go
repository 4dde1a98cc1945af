// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
)

// Registry maps names to Go types, and encodes and decodes their values. It is immutable and safe
// for concurrent use. A nil *Registry is empty.
type Registry struct {
	entries   []Entry
	err       error
	write     Format // nil is msgpack
	writeName string
	writers   map[reflect.Type]*writer
	readers   map[string]*reader
	removed   map[string]struct{}
	upcasters map[reflect.Type]*upcaster
	plans     *plans
}

// writer encodes values of one current type.
type writer struct {
	manifest string
	plan     *plan
	to       func(any) (any, error) // conversion to the stored type, nil if there is none
}

// Types makes a registry that writes msgpack. Mistakes in the entries are collected, and returned
// by Err.
func Types(entries ...Entry) *Registry { return build(entries, nil, nil) }

// Using returns a copy of the registry that writes the given format; nil is msgpack. The manifest
// of each payload selects the format for reading: msgpack, JSON, the given format, or one of
// alsoRead.
func (r *Registry) Using(write Format, alsoRead ...Format) *Registry {
	return build(r.entries, write, alsoRead)
}

// Err returns all mistakes in the registry, joined, or nil: names that are blank, bad or taken,
// types with two names, types that can't be stored, gaps in the versions. A registry with mistakes
// must not be used.
func (r *Registry) Err() error {
	if r == nil {
		return nil
	}
	return r.err
}

// GoTypes yields the current Go types with their names, ordered by name.
func (r *Registry) GoTypes() iter.Seq2[string, reflect.Type] {
	return func(yield func(string, reflect.Type) bool) {
		if r == nil {
			return
		}
		byName := make(map[string]reflect.Type, len(r.writers))
		for t, w := range r.writers {
			byName[w.manifest] = t
		}
		for _, manifest := range slices.Sorted(maps.Keys(byName)) {
			m, _ := parseManifest(manifest)
			if !yield(m.name, byName[manifest]) {
				return
			}
		}
	}
}

// Encode returns the manifest and the encoded form of v. The payload is newly allocated, has no
// spare capacity, and is the same for the same value. The error wraps ErrNotRegistered if the type
// of v has no name, and ErrLimit if v is nested more than 100 levels deep. Decode accepts every
// result of Encode.
func (r *Registry) Encode(v any) (manifest string, payload []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			manifest, payload, err = "", nil, fmt.Errorf("codec: encode %T: %w", v, &PanicError{p})
		}
	}()
	var w *writer
	if r != nil {
		w = r.writers[reflect.TypeOf(v)]
	}
	if w == nil {
		return "", nil, r.notRegistered(v)
	}
	if w.to != nil && !isNil(v) {
		domain := v
		v, err = w.to(domain)
		if err == nil && isNil(v) {
			err = fmt.Errorf("the function that adapts %T returned a nil %T", domain, v)
		}
		if err != nil {
			return "", nil, fmt.Errorf("codec: encode %s: %w", w.manifest, err)
		}
	}
	switch {
	case isNil(v):
		err = fmt.Errorf("a nil %T", v)
	case r.write == nil:
		payload, err = r.plans.encode(w.plan, reflect.ValueOf(v))
	default:
		payload, err = r.write.Marshal(v)
	}
	if err != nil {
		return "", nil, fmt.Errorf("codec: encode %s: %w", w.manifest, err)
	}
	return w.manifest, payload, nil
}

func (r *Registry) notRegistered(v any) error {
	t := reflect.TypeOf(v)
	if t == nil {
		return fmt.Errorf("%w: nil is not a value", ErrNotRegistered)
	}
	if r != nil {
		if t.Kind() == reflect.Pointer && r.writers[t.Elem()] != nil {
			return fmt.Errorf("%w: %v: the registry has %v, so pass the value, not a pointer", ErrNotRegistered, t, t.Elem())
		}
		if r.writers[reflect.PointerTo(t)] != nil {
			return fmt.Errorf("%w: %v: the registry has *%[2]v, so pass a pointer", ErrNotRegistered, t)
		}
	}
	return fmt.Errorf("%w: %v: add codec.Name[%[2]v](\"...\") to the registry", ErrNotRegistered, t)
}

// Manifests yields the manifests under which values are stored, in sorted order. These are the
// manifests that Encode returns, and the manifests of the older versions that an Upcast or a Split
// reads. All are in the format that Encode writes. Earlier names (Was), removed names and other
// formats are not included.
func (r *Registry) Manifests() iter.Seq[string] {
	return func(yield func(string) bool) {
		if r == nil {
			return
		}
		var all []string
		for _, w := range r.writers {
			all = append(all, w.manifest)
		}
		for _, u := range r.upcasters {
			all = append(all, manifest{u.name, u.version, r.writeName}.String())
		}
		slices.Sort(all)
		for _, m := range slices.Compact(all) {
			if !yield(m) {
				return
			}
		}
	}
}

// isNil reports whether v is a nil pointer. Nil pointers are not encoded.
func isNil(v any) bool {
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}

// maxUpcasts is the maximum number of upcasters that are applied to one stored value. Without this
// limit, two splits that each return the type of the other would never end.
const maxUpcasts = 1000

// reader decodes payloads with one manifest.
type reader struct {
	typ     reflect.Type
	plan    *plan
	planErr error
	format  Format    // nil is msgpack
	up      *upcaster // nil for a current type that is stored without conversion
}

// DecodeAppend appends the current values of a stored payload to dst: usually one, none if the type
// was removed, or several if an upcaster splits it. After an error DecodeAppend returns dst
// unchanged. The error wraps ErrUnknown if the registry does not contain the manifest, and
// ErrMalformed or ErrLimit if the payload cannot be decoded. Errors of upcasters and of methods of
// the type are also returned. DecodeAppend neither modifies nor keeps the payload.
func (r *Registry) DecodeAppend(dst []any, manifest string, payload []byte) (out []any, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = dst, fmt.Errorf("codec: decode %s: %w", manifest, &PanicError{p})
		}
	}()
	if r == nil {
		return dst, fmt.Errorf("%w: %q: the registry is empty", ErrUnknown, manifest)
	}
	rd := r.readers[manifest]
	if rd == nil {
		return dst, r.unread(manifest)
	}
	v, err := r.read(rd, payload)
	if err == nil && isNil(v) {
		err = fmt.Errorf("%w: nil", ErrMalformed)
	}
	if err != nil {
		return dst, fmt.Errorf("codec: decode %s: %w", manifest, err)
	}
	if rd.up == nil {
		return append(dst, v), nil
	}
	steps := maxUpcasts
	out, err = r.upcast(dst, v, &steps)
	if err != nil {
		return dst, fmt.Errorf("codec: upcast %s: %w", manifest, err)
	}
	return out, nil
}

// Decode is DecodeAppend for a payload with exactly one value, such as a command. Otherwise the
// error wraps ErrUnknown.
func (r *Registry) Decode(manifest string, payload []byte) (any, error) {
	vs, err := r.DecodeAppend(nil, manifest, payload)
	if err != nil {
		return nil, err
	}
	if len(vs) != 1 {
		return nil, fmt.Errorf("%w: %q decodes to %d values, want one", ErrUnknown, manifest, len(vs))
	}
	return vs[0], nil
}

func (r *Registry) read(rd *reader, payload []byte) (any, error) {
	if rd.format == nil {
		if rd.planErr != nil {
			return nil, rd.planErr
		}
		return r.plans.decode(rd.plan, payload)
	}
	p := reflect.New(rd.typ)
	if err := rd.format.Unmarshal(payload, p.Interface()); err != nil {
		return nil, err
	}
	return p.Elem().Interface(), nil
}

// upcast appends the current values of v. It applies upcasters until only current values are left.
// Each application decrements steps.
func (r *Registry) upcast(dst []any, v any, steps *int) ([]any, error) {
	for {
		t := reflect.TypeOf(v)
		if r.writers[t] != nil {
			return append(dst, v), nil
		}
		u := r.upcasters[t]
		if u == nil {
			return nil, r.notRegistered(v)
		}
		if *steps--; *steps < 0 {
			return nil, fmt.Errorf("%w: more than %d steps", ErrLimit, maxUpcasts)
		}
		n := len(dst)
		out, err := u.fn(dst, v)
		if err != nil {
			return nil, err
		}
		for i, part := range out[n:] {
			if part == nil || isNil(part) {
				return nil, fmt.Errorf("value %d of %d that the function for %s returned is nil (%T)", i+1, len(out)-n, u, part)
			}
		}
		if dst = out[:n]; len(out) == n+1 {
			v = out[n]
			continue
		}
		for _, part := range slices.Clone(out[n:]) {
			if dst, err = r.upcast(dst, part, steps); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
}

// unread returns the error for a manifest without a reader, or nil if the name in the manifest was
// removed.
func (r *Registry) unread(s string) error {
	m, ok := parseManifest(s)
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknown, s)
	}
	if _, gone := r.removed[m.name]; gone {
		return nil
	}
	return fmt.Errorf("%w: %q (name %q, version %d, format %s): %s", ErrUnknown, s, m.name, m.version, m.format, r.remedy(m))
}

func (r *Registry) remedy(m manifest) string {
	highest := 0
	for known := range r.readers {
		k, _ := parseManifest(known)
		if k.name != m.name {
			continue
		}
		if k.version == m.version {
			return "the registry reads it in other formats: add the format with Using"
		}
		highest = max(highest, k.version)
	}
	switch {
	case highest == 0:
		return fmt.Sprintf("add codec.Name[...](%q) to the registry, or Was(%[1]q) to the type that had the name, or codec.Removed(%[1]q)", m.name)
	case m.version > highest:
		return fmt.Sprintf("written by a newer program, this one supports version %d", highest)
	}
	return fmt.Sprintf("add codec.Upcast(%q, %d, ...)", m.name, m.version)
}
