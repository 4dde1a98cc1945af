// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

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
	p.encode, p.decode, p.keepsNil = s.encode, s.decode, true
	return nil
}

// structPlan writes a struct as a map from field names, in the order of the fields.
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

// decode sets the fields that the data contains, and does not change the other fields.
func (s *structPlan) decode(d *decoder, v reflect.Value) error {
	t := d.next()
	if t.kind != kindMap {
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
		if err := f.plan.read(d, f.of(v)); err != nil {
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

// omitted reports whether the field is omitted because it is empty.
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

const structTag = "refold"

type field struct {
	name  string
	alias string // another name under which it is read, or ""
	index []int  // through embedded structs
	omit  bool   // if empty
	plan  *plan
	head  []byte // the encoded name
}

type fieldTag struct {
	skip, omit, noInline bool
	name, alias          string
}

func parseTag(f reflect.StructField) (fieldTag, error) {
	var tag fieldTag
	switch name, _, _ := strings.Cut(f.Tag.Get(structTag), ","); name {
	case "-":
		return fieldTag{skip: true}, nil
	case "":
	default:
		return tag, fmt.Errorf(`the tag refold:%q: only refold:"-" is allowed`, name)
	}
	name, options, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
	if name == "-" {
		return fieldTag{skip: true}, nil
	}
	tag.name = name
	for option := range strings.SplitSeq(options, ",") {
		alias, isAlias := strings.CutPrefix(option, "alias:")
		switch {
		case isAlias:
			tag.alias = alias
		case option == "omitempty":
			tag.omit = true
		case option == "noinline":
			tag.noInline = true
		case option == "" || option == "inline":
		default:
			return tag, fmt.Errorf("the msgpack tag's option %q is not supported", option)
		}
	}
	return tag, nil
}

// fields returns the stored fields of a struct. Embedded struct values are inlined. It returns an
// error if a field would be lost: one that is inaccessible, or two with the same name.
func (c *compiler) fields(t reflect.Type) ([]field, error) {
	fs, err := c.collect(t)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, f := range fs {
		for _, name := range []string{f.name, f.alias} {
			if name != "" && taken[name] {
				return nil, fmt.Errorf("two fields have the name %q", name)
			}
			taken[name] = true
		}
	}
	return fs, nil
}

func (c *compiler) collect(t reflect.Type) ([]field, error) {
	var fs []field
	var wrong pathErrors
	for sf := range t.Fields() {
		found, err := c.field(sf)
		if err != nil {
			err = at(sf.Name, err)
			if all, many := errors.AsType[pathErrors](err); many {
				wrong = append(wrong, all...)
			} else {
				wrong = append(wrong, err)
			}
		}
		fs = append(fs, found...)
	}
	if wrong != nil {
		return nil, wrong
	}
	return fs, nil
}

func (c *compiler) field(sf reflect.StructField) ([]field, error) {
	tag, err := parseTag(sf)
	if err != nil {
		return nil, err
	}
	if tag.skip || sf.Name == "_" || sf.Type.Size() == 0 {
		return nil, nil // excluded by its tag, or without data
	}
	if sf.Anonymous && sf.Type.Kind() == reflect.Struct && tag.name == "" && !tag.noInline && marshalerOf(sf.Type) == noMarshaler {
		var inner []field
		inner, err = c.collect(sf.Type)
		for i := range inner {
			inner[i].index = slices.Concat(sf.Index, inner[i].index)
		}
		return inner, err
	}
	if !sf.IsExported() {
		return nil, errors.New(`the field is unexported, and would not be stored: export it, or tag it refold:"-"`)
	}
	p, err := c.plan(sf.Type)
	if err != nil {
		return nil, err
	}
	name := sf.Name
	if tag.name != "" {
		name = tag.name
	}
	return []field{{name: name, alias: tag.alias, index: sf.Index, omit: tag.omit, plan: p}}, nil
}
