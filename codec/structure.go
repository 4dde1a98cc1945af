// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

func (c *compiler) structure(p *plan) error {
	fs, err := c.fields(p.typ)
	if err != nil {
		return err
	}
	s := &structPlan{fields: fs, byName: make(map[string]*field, len(fs))}
	for i := range fs {
		f := &fs[i]
		if f.head, err = msgpack.Marshal(f.name); err != nil {
			return at(f.name, err)
		}
		s.byName[f.name] = f
		if f.alias != "" {
			s.byName[f.alias] = f
		}
		s.omits = s.omits || f.omit
		p.needsAddr = p.needsAddr || f.plan.needsAddr
	}
	p.encode, p.decode = s.encode, s.decode
	return nil
}

// structPlan writes a struct as a map from field names, in the order of the
// fields.
type structPlan struct {
	fields []field
	byName map[string]*field
	omits  bool // some field may be left out
}

func (s *structPlan) encode(e *encoder, v reflect.Value) error {
	if err := e.nest(); err != nil {
		return err
	}
	n := len(s.fields)
	if s.omits {
		for i := range s.fields {
			if s.fields[i].omitted(v) {
				n--
			}
		}
	}
	if err := e.mp.EncodeMapLen(n); err != nil {
		return err
	}
	for i := range s.fields {
		f := &s.fields[i]
		if f.omitted(v) {
			continue
		}
		e.buf = append(e.buf, f.head...)
		if err := f.plan.encode(e, f.of(v)); err != nil {
			return at(f.name, err)
		}
	}
	e.depth--
	return nil
}

// decode fills the fields that the data has, and leaves the others as they are.
func (s *structPlan) decode(d *decoder, v reflect.Value) error {
	t := d.next()
	switch t.kind {
	case kindMap:
	case kindNil:
		return nil
	default:
		return d.mismatch(t, v)
	}
	for i := range t.size {
		key := d.next()
		if key.kind != kindString && key.kind != kindBinary {
			return d.mismatch(key, reflect.ValueOf(""))
		}
		name := d.body(key)
		var f *field
		if i < len(s.fields) && s.fields[i].name == string(name) { // the order in which they are written
			f = &s.fields[i]
		} else if f = s.byName[string(name)]; f == nil {
			if _, err := d.value(); err != nil {
				return err
			}
			continue
		}
		if err := f.plan.decode(d, f.of(v)); err != nil {
			return at(f.name, err)
		}
	}
	return nil
}

func (f *field) of(v reflect.Value) reflect.Value {
	if len(f.index) == 1 {
		return v.Field(f.index[0])
	}
	return v.FieldByIndex(f.index)
}

// omitted tells whether the field is left out because it is empty.
func (f *field) omitted(v reflect.Value) bool {
	if !f.omit {
		return false
	}
	v = f.of(v)
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}
