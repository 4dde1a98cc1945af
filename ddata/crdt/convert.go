// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/refold-io/refold/codec"
)

// appendElement appends the encoded form of a Go value.
func appendElement[E any](dst []byte, e E, types *Types) ([]byte, error) {
	start := len(dst)
	var err error
	if text, ok := any(e).(string); ok { // apart from the others, so that it need not be on the heap
		dst = append(append(dst, tagString), text...)
	} else if dst, err = appendOther(dst, e, types); err != nil {
		return nil, err
	}
	if n := len(dst) - start; n > MaxElement {
		return nil, fmt.Errorf("%w: an element of %d bytes, at most %d are allowed", ErrLimit, n, MaxElement)
	}
	return dst, nil
}

func appendOther(dst []byte, e any, types *Types) ([]byte, error) {
	switch v := e.(type) {
	case int:
		return appendSigned(dst, int64(v)), nil
	case int64:
		return appendSigned(dst, v), nil
	case uint64:
		return appendInt(dst, false, v), nil
	case []byte:
		return append(append(dst, tagBytes), v...), nil
	default:
		return appendReflected(dst, reflect.ValueOf(v), types)
	}
}

func appendReflected(dst []byte, v reflect.Value, types *Types) ([]byte, error) {
	if !v.IsValid() {
		return nil, fmt.Errorf("%w: nil is none", ErrElement)
	}
	switch v.Kind() {
	case reflect.String:
		return append(append(dst, tagString), v.String()...), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return appendSigned(dst, v.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return appendInt(dst, false, v.Uint()), nil
	case reflect.Bool:
		if v.Bool() {
			return append(dst, tagTrue), nil
		}
		return append(dst, tagFalse), nil
	case reflect.Float32, reflect.Float64:
		return appendFloat(dst, v.Float())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			break
		}
		dst = append(dst, tagBytes)
		for i := range v.Len() {
			dst = append(dst, byte(v.Index(i).Uint())) //nolint:gosec // it is one
		}
		return dst, nil
	default:
	}
	manifest, payload, err := types.registry().Encode(v.Interface())
	if err != nil {
		return nil, unnamed(err)
	}
	dst = binary.AppendUvarint(append(dst, tagNamed), uint64(len(manifest)))
	return append(append(dst, manifest...), payload...), nil
}

// unnamed is the error of the registry about an element. It says which registry that is.
func unnamed(err error) error {
	if errors.Is(err, codec.ErrNotRegistered) || errors.Is(err, codec.ErrUnknown) {
		return fmt.Errorf("%w: %w: the registry is that of crdt.NewTypes, for ddata.Config.Types", ErrElement, err)
	}
	return fmt.Errorf("%w: %w", ErrElement, err)
}

// encodeElement returns the encoded form of a Go value.
func encodeElement[E any](e E, types *Types) (string, error) {
	var buf [64]byte
	b, err := appendElement(buf[:0], e, types)
	return string(b), err
}

func encodeElements[E any](elements []E, types *Types) ([]string, error) {
	keys := make([]string, len(elements))
	for i, e := range elements {
		var err error
		if keys[i], err = encodeElement(e, types); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// decodeElement returns the Go value of an element that is well-formed.
func decodeElement[E any](s string, types *Types) (e E, err error) {
	if p, ok := any(&e).(*string); ok && s[0] == tagString {
		*p = s[1:]
		return e, nil
	}
	to := reflect.ValueOf(&e).Elem()
	if named(s[0]) {
		return e, decodeNamed(s, to, types)
	}
	if to.Kind() != reflect.Interface {
		return e, setPlain(s, to)
	}
	v := reflect.ValueOf(plainElement(s))
	if !v.Type().AssignableTo(to.Type()) {
		return e, wrongElement(s, to)
	}
	to.Set(v)
	return e, nil
}

func named(tag byte) bool { return tag == tagNamed }

func decodeNamed(s string, to reflect.Value, types *Types) error {
	manifest, payload, ok := cutNamed(s)
	if !ok {
		return wrongElement(s, to)
	}
	v, err := types.registry().Decode(manifest, []byte(payload))
	if err != nil {
		return unnamed(err)
	}
	rv := reflect.ValueOf(v)
	if !rv.IsValid() || !rv.Type().AssignableTo(to.Type()) {
		return fmt.Errorf("%w: it is a %T, and not a %v", ErrElement, v, to.Type())
	}
	to.Set(rv)
	return nil
}

// setPlain sets a variable of a basic kind.
func setPlain(s string, to reflect.Value) error {
	tag := s[0]
	switch kind := to.Kind(); {
	case kind == reflect.String && tag == tagString:
		to.SetString(s[1:])
		return nil
	case kind == reflect.Bool && elementBool.accepts(tag):
		to.SetBool(tag == tagTrue)
		return nil
	case to.CanFloat() && tag == tagFloat:
		if f, ok := cutFloat(s); ok && !to.OverflowFloat(f) {
			to.SetFloat(f)
			return nil
		}
	case elementInt.accepts(tag):
		negative, size, _ := cutInt(s)
		if to.CanUint() && !negative && !to.OverflowUint(size) {
			to.SetUint(size)
			return nil
		}
		if i, ok := signed(negative, size); to.CanInt() && ok && !to.OverflowInt(i) {
			to.SetInt(i)
			return nil
		}
	case kind == reflect.Slice && tag == tagBytes && to.Type().Elem().Kind() == reflect.Uint8:
		to.SetBytes([]byte(s[1:]))
		return nil
	case kind == reflect.Array && tag == tagBytes && to.Type().Elem().Kind() == reflect.Uint8 && to.Len() == len(s)-1:
		for i := range to.Len() {
			to.Index(i).SetUint(uint64(s[1+i]))
		}
		return nil
	}
	return wrongElement(s, to)
}

func signed(negative bool, size uint64) (int64, bool) {
	if negative {
		return int64(-size), true //nolint:gosec // two's complement, checked when it was decoded
	}
	return int64(size), size <= math.MaxInt64 //nolint:gosec // checked
}

// plainElement returns what an element is without a Go type: a string, int64,
// uint64 if that is too small, bool, float64 or []byte.
func plainElement(s string) any {
	switch tag := s[0]; {
	case tag == tagString:
		return s[1:]
	case elementBool.accepts(tag):
		return tag == tagTrue
	case tag == tagFloat:
		f, _ := cutFloat(s)
		return f
	case elementInt.accepts(tag):
		negative, size, _ := cutInt(s)
		if i, ok := signed(negative, size); ok {
			return i
		}
		return size
	}
	return []byte(s[1:])
}

func wrongElement(s string, to reflect.Value) error {
	return fmt.Errorf("%w: %.40q does not fit a %v", ErrElement, fmt.Sprint(plainElement(s)), to.Type())
}
