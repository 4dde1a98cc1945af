// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"
)

type region struct {
	from, to uintptr
	path     string
}

// sharing returns a description of memory that a value and the state share and that the holder of
// the value could change. It returns "" if they share no such memory. Unexported fields of the
// value are ignored, because no other package can change them.
func sharing(value, state any) string {
	if value == nil {
		return ""
	}
	mine := walk(value, fmt.Sprintf("%T", value), true)
	if len(mine) == 0 {
		return ""
	}
	theirs := walk(state, "state", false)
	slices.SortFunc(theirs, func(a, b region) int { return cmp.Compare(a.from, b.from) })
	for _, m := range mine {
		for _, r := range theirs {
			if r.from >= m.to {
				break
			}
			if m.from < r.to {
				return fmt.Sprintf("%s is %s", m.path, r.path)
			}
		}
	}
	return ""
}

type walker struct {
	exported bool // ignore unexported fields
	seen     map[visit]bool
	regions  []region
}

type visit struct {
	at uintptr
	t  reflect.Type
}

func walk(value any, path string, exported bool) []region {
	w := &walker{exported: exported, seen: make(map[visit]bool)}
	w.value(reflect.ValueOf(value), path)
	return w.regions
}

func (w *walker) add(at uintptr, size uintptr, path string) {
	if size > 0 {
		w.regions = append(w.regions, region{at, at + size, path})
	}
}

func (w *walker) value(v reflect.Value, path string) {
	if !v.IsValid() || v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[*time.Location]() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || !w.first(v.Pointer(), v.Type()) || !w.mutable(v.Type().Elem()) {
			return
		}
		w.add(v.Pointer(), v.Type().Elem().Size(), path)
		w.value(v.Elem(), path)
	case reflect.Interface:
		w.value(v.Elem(), path)
	case reflect.Slice:
		if v.Len() == 0 || !w.first(v.Pointer(), v.Type()) {
			return
		}
		w.add(v.Pointer(), uintptr(v.Len())*v.Type().Elem().Size(), path)
		for i := range v.Len() {
			w.value(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Array:
		for i := range v.Len() {
			w.value(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		if v.IsNil() || !w.first(v.Pointer(), v.Type()) {
			return
		}
		w.add(v.Pointer(), 1, path)
		for it := v.MapRange(); it.Next(); {
			w.value(it.Key(), path+" key")
			w.value(it.Value(), fmt.Sprintf("%s[%v]", path, it.Key()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || !w.exported {
				w.value(v.Field(i), path+"."+f.Name)
			}
		}
	default: // no mutable memory
	}
}

// first reports whether the memory is visited with this type for the first time.
func (w *walker) first(at uintptr, t reflect.Type) bool {
	v := visit{at, t}
	if w.seen[v] {
		return false
	}
	w.seen[v] = true
	return true
}

// mutable reports whether the holder of a pointer to this type can change the memory. The holder
// can't change a struct without exported fields.
func (w *walker) mutable(t reflect.Type) bool {
	if !w.exported || t.Kind() != reflect.Struct {
		return true
	}
	for f := range t.Fields() {
		if f.IsExported() {
			return true
		}
	}
	return false
}
