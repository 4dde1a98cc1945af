// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// region is memory that a value refers to.
type region struct {
	from, to uintptr
	path     string
}

// sharing looks for memory that its holder could change through a value and that the state refers
// to. It returns where, or "".
//
// Of the value only what is exported counts: nobody else can change the rest.
func sharing(value, state any) string {
	if value == nil {
		return ""
	}
	mine := walk(value, true)
	if len(mine) == 0 {
		return ""
	}
	theirs := walk(state, false)
	slices.SortFunc(theirs, func(a, b region) int {
		switch {
		case a.from < b.from:
			return -1
		case a.from > b.from:
			return 1
		}
		return 0
	})
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

// walker collects the memory that a value refers to.
type walker struct {
	exported bool // stop at what is not exported
	seen     map[visit]bool
	regions  []region
}

type visit struct {
	at uintptr
	t  reflect.Type
}

func walk(value any, exported bool) []region {
	w := &walker{exported: exported, seen: make(map[visit]bool)}
	v := reflect.ValueOf(value)
	if !exported { // the state is a pointer; its fields are what counts
		w.value(v, "state")
	} else {
		w.value(v, fmt.Sprintf("%T", value))
	}
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
	default: // nothing that refers to memory, or nothing that can be changed
	}
}

// first reports whether memory was not visited yet as this type.
func (w *walker) first(at uintptr, t reflect.Type) bool {
	v := visit{at, t}
	if w.seen[v] {
		return false
	}
	w.seen[v] = true
	return true
}

// mutable reports whether what a pointer of a value points to can be changed by its holder: a
// struct without exported fields can't.
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

// sprint prints a state with what it points to.
func sprint(state any) string {
	v := reflect.ValueOf(state)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return fmt.Sprintf("%+v", v.Elem())
	}
	return fmt.Sprintf("%+v", state)
}
