// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
)

// maxDifferenceDepth ends the comparison of a value that contains itself.
const maxDifferenceDepth = 200

// difference returns the path of the first field in which a decoded value differs, and the cause, or ""
// if the values are equal. A type with a method Equal decides by this method, except time.Time: its zone
// counts. Two NaN are equal.
func difference(value, decoded any) string {
	path, cause := differ(reflect.ValueOf(value), reflect.ValueOf(decoded), 0)
	if path = strings.TrimPrefix(path, "."); path != "" {
		return path + ": " + cause
	}
	return cause
}

func differ(a, b reflect.Value, depth int) (path, cause string) {
	switch {
	case depth > maxDifferenceDepth, !a.IsValid() && !b.IsValid():
		return "", ""
	case a.IsValid() != b.IsValid(), a.Type() != b.Type(), nilable(a) && a.IsNil() != b.IsNil() && !sameHidden(a, b):
		return "", fmt.Sprintf("%s is decoded as %s", goString(a), goString(b))
	case nilable(a) && a.IsNil():
		return "", ""
	}
	if a.CanInterface() {
		if t, ok := reflect.TypeAssert[time.Time](a); ok {
			decoded, _ := reflect.TypeAssert[time.Time](b)
			return "", differTimes(t, decoded)
		}
		if same, decides := callEqual(a, b); decides {
			if !same {
				cause = fmt.Sprintf("%+v is decoded as %+v", a, b)
			}
			return "", cause
		}
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		return differ(a.Elem(), b.Elem(), depth+1)
	case reflect.Struct:
		for i := range a.NumField() {
			if path, cause = differ(a.Field(i), b.Field(i), depth+1); cause != "" {
				return "." + a.Type().Field(i).Name + path, cause
			}
		}
		return "", ""
	case reflect.Slice, reflect.Array:
		for i := range min(a.Len(), b.Len()) {
			if path, cause = differ(a.Index(i), b.Index(i), depth+1); cause != "" {
				return fmt.Sprintf("[%d]%s", i, path), cause
			}
		}
	case reflect.Map:
		for it := a.MapRange(); it.Next(); {
			if path, cause = differ(it.Value(), b.MapIndex(it.Key()), depth+1); cause != "" {
				return fmt.Sprintf("[%v]%s", it.Key(), path), cause
			}
		}
	default:
		if a.Comparable() && !a.Equal(b) && !(a.CanFloat() && math.IsNaN(a.Float()) && math.IsNaN(b.Float())) {
			cause = fmt.Sprintf("%+v is decoded as %+v", a, b)
		}
		return "", cause
	}
	if a.Len() != b.Len() {
		cause = fmt.Sprintf("%d elements are decoded as %d", a.Len(), b.Len())
	}
	return "", cause
}

// sameHidden reports whether two values are empty slices in an unexported field. A type that encodes
// itself, such as big.Int, need not distinguish nil from empty.
func sameHidden(a, b reflect.Value) bool {
	return !a.CanInterface() && a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0
}

func nilable(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map, reflect.Func, reflect.Chan:
		return true
	default:
		return false
	}
}

// goString returns a value with its type, or nil.
func goString(v reflect.Value) string {
	if !v.IsValid() || nilable(v) && v.IsNil() {
		return "nil"
	}
	return fmt.Sprintf("%v(%+v)", v.Type(), v)
}

// differTimes returns the cause if two times differ. Formats that store the offset of a zone decode it
// as an unnamed or as the local zone, which is equal.
func differTimes(t, decoded time.Time) string {
	_, offset := t.Zone()
	_, decodedOffset := decoded.Zone()
	switch {
	case !t.Equal(decoded):
		return fmt.Sprintf("%v is decoded as %v", t, decoded)
	case t == t.Round(0) && offset == decodedOffset && (t.Location() == time.UTC || decoded.Location() != time.UTC): //nolint:staticcheck // Round removes the monotonic clock reading
		return ""
	}
	return fmt.Sprintf("%v in %v is decoded as %v in %v, because the encoding has no zone and no monotonic clock reading: "+
		"use Context.Now, or the method UTC of the time", t, zone(t), decoded, zone(decoded))
}

// zone returns the name of the zone of a time. The local zone of some machines has the name UTC, and
// nevertheless differs from UTC on other machines.
func zone(t time.Time) string {
	if t.Location() == time.Local {
		return "Local"
	}
	return t.Location().String()
}

// callEqual calls the method Equal of a type. It reports whether the type has this method.
func callEqual(a, b reflect.Value) (same, found bool) {
	m := a.MethodByName("Equal")
	if !m.IsValid() || m.Type().NumIn() != 1 || m.Type().In(0) != a.Type() || m.Type().NumOut() != 1 || m.Type().Out(0).Kind() != reflect.Bool {
		return false, false
	}
	return m.Call([]reflect.Value{b})[0].Bool(), true
}
