// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shape is what encoding/json allocates when it reads a value of some type. It
// may overestimate.
type shape struct {
	alloc  int               // for what is always there, such as what a pointer points to
	target *shape            // what a pointer points to
	array  *elements         // of an array
	object *elements         // of an object that becomes a map
	fields map[string]*shape // of an object that becomes a struct, by folded name
}

// elements is what an array or an object brings.
type elements struct {
	first, each int // for not being empty, for each element
	shape       *shape
}

// shapeOf returns the shape of a type. Shapes refer to each other where types
// do, so made holds those of the types around this one.
func shapeOf(t reflect.Type, made map[reflect.Type]*shape) *shape {
	if s, ok := made[t]; ok {
		return s
	}
	s := &shape{}
	made[t] = s
	if hasOwnJSON(t) {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		s.alloc, s.target = costNew(t.Elem().Size()), shapeOf(t.Elem(), made)
	case reflect.Interface:
		s.alloc = 16
		s.array, s.object = slicesOf(16, s), mapsOf(16, 16, s)
	case reflect.Slice:
		s.array = slicesOf(t.Elem().Size(), shapeOf(t.Elem(), made))
	case reflect.Array:
		s.array = &elements{shape: shapeOf(t.Elem(), made)}
	case reflect.Map:
		s.object = mapsOf(t.Key().Size(), t.Elem().Size(), shapeOf(t.Elem(), made))
	case reflect.Struct:
		s.fields = map[string]*shape{}
		s.addFields(t, made)
	default:
	}
	return s
}

// slicesOf accounts for a slice that grows as it is read: in the end by a
// quarter of its length at a time, so that it takes five times its size.
func slicesOf(size uintptr, elem *shape) *elements {
	return &elements{first: 32 + costNew(4*size), each: int(7 * size), shape: elem}
}

// mapsOf accounts for a map that grows as it is read.
func mapsOf(key, value uintptr, elem *shape) *elements {
	return &elements{first: costMap(1, key, value), each: int(8*(slotSize(key, value)+1) + 32), shape: elem}
}

// addFields adds the fields of a struct and of those that it embeds, level by
// level, so that the outer ones hide the inner ones.
func (s *shape) addFields(t reflect.Type, made map[reflect.Type]*shape) {
	seen := map[reflect.Type]bool{t: true}
	for level := []reflect.Type{t}; len(level) > 0; {
		var embedded []reflect.Type
		for _, t := range level {
			for f := range t.Fields() {
				if e := s.addField(f, made); e != nil && !seen[e] {
					seen[e] = true
					embedded = append(embedded, e)
				}
			}
		}
		level = embedded
	}
}

// addField adds a field, unless it is an embedded struct, which it returns.
func (s *shape) addField(f reflect.StructField, made map[reflect.Type]*shape) reflect.Type {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if f.Tag.Get("json") == "-" {
		return nil
	}
	if f.Anonymous && name == "" {
		elem := f.Type
		if elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
			s.alloc += costNew(elem.Size())
		}
		if elem.Kind() == reflect.Struct {
			return elem
		}
	}
	if !f.IsExported() {
		return nil
	}
	if name == "" {
		name = f.Name
	}
	if name = string(appendFolded(nil, []byte(name))); s.fields[name] == nil {
		s.fields[name] = shapeOf(f.Type, made)
	}
	return nil
}

// appendFolded appends the form that all names share which encoding/json takes
// for each other.
func appendFolded(dst, name []byte) []byte {
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		name = name[n:]
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		dst = utf8.AppendRune(dst, least)
	}
	return dst
}

// hasOwnJSON tells types that read JSON by a method.
func hasOwnJSON(t reflect.Type) bool {
	ptr := reflect.PointerTo(t)
	return ptr.Implements(reflect.TypeFor[json.Unmarshaler]()) || ptr.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
