// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"

	"github.com/refold-io/refold/codec"
)

func appendElement[E any](dst []byte, e E, types *Types) ([]byte, error) {
	start := len(dst)
	var err error
	if text, ok := any(e).(string); ok { // handled separately, so that a string does not escape to the heap
		dst = append(append(dst, tagString), text...)
	} else if dst, err = appendReflected(dst, reflect.ValueOf(e), types); err != nil {
		return nil, err
	}
	if n := len(dst) - start; n > MaxElement {
		return nil, fmt.Errorf("%w: element has %d bytes, at most %d are allowed", ErrLimit, n, MaxElement)
	}
	return dst, nil
}

func appendReflected(dst []byte, v reflect.Value, types *Types) ([]byte, error) {
	if !v.IsValid() {
		return nil, fmt.Errorf("%w: nil is not an element", ErrElement)
	}
	switch v.Kind() {
	case reflect.String:
		return append(append(dst, tagString), v.String()...), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return appendInt(dst, v.Int() < 0, magnitude(v.Int())), nil
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
		if v.Kind() == reflect.Array {
			addressable := reflect.New(v.Type()).Elem()
			addressable.Set(v)
			v = addressable
		}
		return append(append(dst, tagBytes), v.Bytes()...), nil
	default:
	}
	manifest, payload, err := types.registry().Encode(v.Interface())
	if err != nil {
		return nil, registryError(err)
	}
	dst = binary.AppendUvarint(append(dst, tagNamed), uint64(len(manifest)))
	return append(append(dst, manifest...), payload...), nil
}

// registryError wraps an error of the registry and names the registry that is missing the type.
func registryError(err error) error {
	if errors.Is(err, codec.ErrNotRegistered) || errors.Is(err, codec.ErrUnknown) {
		return fmt.Errorf("%w: %w: register the type in the codec.Registry of ddata.Config.Types (crdt.NewTypes)", ErrElement, err)
	}
	return fmt.Errorf("%w: %w", ErrElement, err)
}

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

func decodeElement[E any](s string, types *Types) (e E, err error) {
	if p, ok := any(&e).(*string); ok && s[0] == tagString {
		*p = s[1:]
		return e, nil
	}
	to := reflect.ValueOf(&e).Elem()
	if s[0] == tagNamed {
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

func decodeNamed(s string, to reflect.Value, types *Types) error {
	manifest, payload, ok := cutNamed(s)
	if !ok {
		return wrongElement(s, to)
	}
	v, err := types.registry().Decode(manifest, []byte(payload))
	if err != nil {
		return registryError(err)
	}
	rv := reflect.ValueOf(v)
	if !rv.IsValid() || !rv.Type().AssignableTo(to.Type()) {
		return fmt.Errorf("%w: got %T, want %v", ErrElement, v, to.Type())
	}
	to.Set(rv)
	return nil
}

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

// plainElement returns an element as a string, int64, uint64 (if int64 is too small), bool, float64
// or []byte.
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
	return fmt.Errorf("%w: %.40q cannot be converted to %v", ErrElement, fmt.Sprint(plainElement(s)), to.Type())
}

// Elements of sets, keys of maps and values of registers are stored in encoded form. The first byte is the type. The bytewise order of encoded elements is the order of the values: strings bytewise, numbers by value.
//
//	0x10 string
//	0x18..0x28 integer: 0x20 is 0, the distance from 0x20 is the number of bytes
//	0x30 false, 0x31 true
//	0x38 bytes
//	0x40 float, 8 bytes
//	0x50 length and manifest, payload: a type registered with package codec
const (
	tagString = 0x10
	tagInt    = 0x20 // the integer 0
	tagFalse  = 0x30
	tagTrue   = 0x31
	tagBytes  = 0x38
	tagFloat  = 0x40
	tagNamed  = 0x50
)

// elementKind is the type of the elements of a set.
type elementKind byte

const (
	elementString elementKind = iota + 1
	elementInt
	elementBool
	elementBytes
	elementFloat
	elementAny // each element carries its own type
)

func (k elementKind) String() string {
	return [...]string{"nothing", "string", "int", "bool", "bytes", "float", "any"}[k]
}

func kindOf[E any]() elementKind {
	t := reflect.TypeFor[E]()
	switch t.Kind() {
	case reflect.String:
		return elementString
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return elementInt
	case reflect.Bool:
		return elementBool
	case reflect.Float32, reflect.Float64:
		return elementFloat
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return elementBytes
		}
	default:
	}
	return elementAny
}

// accepts reports whether an element of this kind may begin with the tag.
func (k elementKind) accepts(tag byte) bool {
	switch k {
	case elementString:
		return tag == tagString
	case elementInt:
		return tag >= tagInt-8 && tag <= tagInt+8
	case elementBool:
		return tag == tagFalse || tag == tagTrue
	case elementBytes:
		return tag == tagBytes
	case elementFloat:
		return tag == tagFloat
	case elementAny:
		return true
	}
	return false
}

// checkElement returns an error unless s is the canonical form of an element of kind k.
func checkElement(k elementKind, s string) error {
	if s == "" || !k.accepts(s[0]) {
		return fmt.Errorf("%w: element %.20x is not of kind %v", ErrMalformed, s, k)
	}
	size := len(s) - 1
	good := false
	switch tag := s[0]; {
	case tag == tagString, tag == tagBytes:
		good = true
	case tag == tagFalse, tag == tagTrue:
		good = size == 0
	case tag == tagFloat:
		f, ok := cutFloat(s)
		good = ok && !math.IsNaN(f) && (f != 0 || !math.Signbit(f))
	case elementInt.accepts(tag):
		_, _, good = cutInt(s)
	case tag == tagNamed:
		_, _, good = cutNamed(s)
	}
	if !good {
		return fmt.Errorf("%w: element %.20x", ErrMalformed, s)
	}
	return nil
}

func appendInt(dst []byte, negative bool, size uint64) []byte {
	n := (bits.Len64(size) + 7) / 8
	if !negative {
		dst = append(dst, byte(tagInt+n)) //nolint:gosec // at most 8
	} else {
		dst = append(dst, byte(tagInt-n)) //nolint:gosec // at most 8
		size = ^size
	}
	for i := n - 1; i >= 0; i-- {
		dst = append(dst, byte(size>>(8*i)&0xff))
	}
	return dst
}

// cutInt decodes sign and magnitude. ok is false if s is not the canonical form of an integer.
func cutInt(s string) (negative bool, size uint64, ok bool) {
	n := int(s[0]) - tagInt
	if n < 0 {
		negative, n = true, -n
	}
	if len(s) != 1+n {
		return false, 0, false
	}
	for i := range n {
		size = size<<8 | uint64(s[1+i])
	}
	if negative {
		size = ^size
		if n < 8 {
			size &= 1<<(8*n) - 1
		}
	}
	return negative, size, (bits.Len64(size)+7)/8 == n && (!negative || size <= 1<<63)
}

func appendFloat(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) {
		return nil, fmt.Errorf("%w: NaN cannot be an element", ErrElement)
	}
	b := math.Float64bits(f + 0) // -0 becomes 0
	if f == 0 {
		b = 0
	}
	if b>>63 == 0 {
		b |= 1 << 63
	} else {
		b = ^b
	}
	return binary.BigEndian.AppendUint64(append(dst, tagFloat), b), nil
}

func cutFloat(s string) (float64, bool) {
	if len(s) != 9 {
		return 0, false
	}
	b := binary.BigEndian.Uint64([]byte(s[1:]))
	if b>>63 == 1 {
		b &^= 1 << 63
	} else {
		b = ^b
	}
	return math.Float64frombits(b), true
}

// cutNamed splits an element that a registry has encoded into manifest and payload.
func cutNamed(s string) (manifest, payload string, ok bool) {
	n, size := binary.Uvarint([]byte(s[1:min(len(s), 1+binary.MaxVarintLen64)]))
	if size <= 0 || n == 0 || size > 1 && s[size] == 0 || n > uint64(len(s)-1-size) { //nolint:gosec // size is within s
		return "", "", false
	}
	rest := s[1+size:]
	return rest[:n], rest[n:], true
}
