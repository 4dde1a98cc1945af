// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
)

// Elements of sets, keys of maps and values of registers are held in their
// encoded form, which says what it is and which orders them bytewise: strings as
// strings, numbers as numbers.
//
//	0x10 string
//	0x18..0x28 integer: 0x20 is 0, the distance to it the number of bytes
//	0x30 false, 0x31 true
//	0x38 bytes
//	0x40 float, 8 bytes
//	0x50 length and manifest, payload: what a registry of package codec has named
const (
	tagString = 0x10
	tagInt    = 0x20 // of 0
	tagFalse  = 0x30
	tagTrue   = 0x31
	tagBytes  = 0x38
	tagFloat  = 0x40
	tagNamed  = 0x50
)

// elementKind is what the elements of a set are.
type elementKind byte

const (
	elementString elementKind = iota + 1
	elementInt
	elementBool
	elementBytes
	elementFloat
	elementAny // each says for itself what it is
)

func (k elementKind) String() string {
	return [...]string{"nothing", "string", "int", "bool", "bytes", "float", "any"}[k]
}

// kindOf returns what the elements of a Go type are.
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

// accepts reports whether an element of a kind may begin with a tag.
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

// isPlain reports whether an element of a kind is a string or bytes, of which all are well-formed.
func (k elementKind) isPlain(b []byte) bool {
	return len(b) > 0 && (b[0] == tagString || b[0] == tagBytes) && k.accepts(b[0])
}

// checkElement returns an error unless s is the one form of an element of a kind.
func checkElement(k elementKind, s string) error {
	if s == "" || !k.accepts(s[0]) {
		return fmt.Errorf("%w: element %.20x is no %v", ErrMalformed, s, k)
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

func appendSigned(dst []byte, i int64) []byte {
	if i < 0 {
		return appendInt(dst, true, -uint64(i)) //nolint:gosec // the magnitude, in two's complement
	}
	return appendInt(dst, false, uint64(i))
}

// cutInt returns sign and magnitude, if that is how an integer is written.
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
		return nil, fmt.Errorf("%w: NaN is not equal to itself", ErrElement)
	}
	b := math.Float64bits(f + 0) // -0 is 0
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

// cutNamed returns the manifest and the payload of an element that a registry
// has encoded.
func cutNamed(s string) (manifest, payload string, ok bool) {
	n, size := binary.Uvarint([]byte(s[1:min(len(s), 1+binary.MaxVarintLen64)]))
	if size <= 0 || n == 0 || size > 1 && s[size] == 0 || n > uint64(len(s)-1-size) { //nolint:gosec // size is within s
		return "", "", false
	}
	rest := s[1+size:]
	return rest[:n], rest[n:], true
}
