// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"reflect"
	"slices"
)

// maxUpcasts is how many functions may work on one stored value, so that two
// splits that produce each other end in an error.
const maxUpcasts = 1000

// reader decodes payloads with one manifest.
type reader struct {
	typ     reflect.Type
	plan    *plan
	planErr error
	format  Format    // nil is msgpack
	up      *upcaster // nil for a current type that is stored as it is
}

func newReader(t reflect.Type, p *plan, err error, f Format, up *upcaster) *reader {
	return &reader{typ: t, plan: p, planErr: err, format: f, up: up}
}

// DecodeAppend appends to dst what a stored payload stands for today: usually
// one value, none if it was removed, or several if an upcaster splits it. On an
// error, dst is returned as it was. The error wraps ErrUnknown if the manifest
// is not one of this registry, else ErrMalformed or ErrLimit, or it is that of
// an upcaster or of a type's own method. DecodeAppend neither changes the
// payload nor keeps it.
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

// Decode is DecodeAppend for a payload that stands for exactly one value, such
// as a command; anything else is an error that wraps ErrUnknown.
func (r *Registry) Decode(manifest string, payload []byte) (any, error) {
	vs, err := r.DecodeAppend(nil, manifest, payload)
	if err != nil {
		return nil, err
	}
	if len(vs) != 1 {
		return nil, fmt.Errorf("%w: %q stands for %d values, want one", ErrUnknown, manifest, len(vs))
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

// upcast appends what v has become, following the functions until only current
// values are left. It counts down the steps that are left.
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

// unread returns the error about a manifest without a reader, which is nil if
// its name was removed.
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

// remedy says what may make a manifest known.
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
		return fmt.Sprintf("a newer program wrote it, this one knows version %d", highest)
	}
	return fmt.Sprintf("add codec.Upcast(%q, %d, ...)", m.name, m.version)
}
