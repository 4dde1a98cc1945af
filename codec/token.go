// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// kind is the type of a msgpack token, regardless of its encoded width.
type kind uint8

const (
	kindInvalid kind = iota
	kindNil
	kindBool
	kindInt  // negative; bits holds an int64
	kindUint // bits holds a uint64
	kindFloat32
	kindFloat64
	kindString // size bytes follow
	kindBinary // size bytes follow
	kindExt    // size bytes follow; bits holds the type
	kindArray  // size elements follow
	kindMap    // size pairs follow
)

func (k kind) String() string {
	return [...]string{
		"an invalid code", "nil", "a bool", "an integer", "an integer", "a float", "a float",
		"a string", "binary data", "an extension", "an array", "a map",
	}[k]
}

// token is the head of one msgpack value.
type token struct {
	kind kind
	size int    // bytes, elements or pairs
	bits uint64 // the value of a scalar
}

// scan reads the token at data[pos:] and returns the position after its head, where its bytes, its
// elements or the next value begin. At the end of the data and at an invalid code the kind is
// kindInvalid.
func scan(data []byte, pos int) (token, int) {
	if pos >= len(data) {
		return token{}, pos
	}
	c := data[pos]
	pos++
	switch {
	case c <= msgpcode.PosFixedNumHigh:
		return token{kind: kindUint, bits: uint64(c)}, pos
	case c <= msgpcode.FixedMapHigh:
		return token{kind: kindMap, size: int(c & msgpcode.FixedMapMask)}, pos
	case c <= msgpcode.FixedArrayHigh:
		return token{kind: kindArray, size: int(c & msgpcode.FixedArrayMask)}, pos
	case c <= msgpcode.FixedStrHigh:
		return token{kind: kindString, size: int(c & msgpcode.FixedStrMask)}, pos
	case c >= msgpcode.NegFixedNumLow:
		return token{kind: kindInt, bits: uint64(int64(int8(c)))}, pos //nolint:gosec // two's complement
	}
	return scanWide(data, pos, c)
}

// scanWide is scan for the codes that are followed by a number.
func scanWide(data []byte, pos int, c byte) (token, int) {
	form := wideForms[c-0xc0]
	k, width := form.kind, form.width
	if len(data)-pos < width {
		return token{}, pos
	}
	var u uint64
	switch width {
	case 1:
		u = uint64(data[pos])
	case 2:
		u = uint64(binary.BigEndian.Uint16(data[pos:]))
	case 4:
		u = uint64(binary.BigEndian.Uint32(data[pos:]))
	case 8:
		u = binary.BigEndian.Uint64(data[pos:])
	}
	pos += width
	switch k {
	case kindInt:
		shift := 64 - 8*width
		i := int64(u<<shift) >> shift //nolint:gosec // two's complement
		if i >= 0 {
			k = kindUint
		}
		return token{kind: k, bits: uint64(i)}, pos //nolint:gosec // two's complement
	case kindBool:
		u = uint64(c & 1)
	case kindString, kindBinary, kindArray, kindMap, kindExt:
		if u > math.MaxInt { // on 32 bits
			return token{}, pos
		}
		t := token{kind: k, size: int(u)}
		if k == kindExt {
			if pos >= len(data) {
				return token{}, pos
			}
			if width == 0 {
				t.size = 1 << (c - msgpcode.FixExt1)
			}
			t.bits = uint64(data[pos])
			pos++
		}
		return t, pos
	default:
	}
	return token{kind: k, bits: u}, pos
}

// wideForms holds the kinds of the codes above the fixed ones, from 0xc0 on, and the width of the
// number after each.
var wideForms = [...]struct { //nolint:gochecknoglobals // a constant table
	kind  kind
	width int
}{
	{kindNil, 0},
	{kindInvalid, 0},
	{kindBool, 0},
	{kindBool, 0},
	{kindBinary, 1},
	{kindBinary, 2},
	{kindBinary, 4}, // 0xc4
	{kindExt, 1},
	{kindExt, 2},
	{kindExt, 4}, // 0xc7
	{kindFloat32, 4},
	{kindFloat64, 8}, // 0xca
	{kindUint, 1},
	{kindUint, 2},
	{kindUint, 4},
	{kindUint, 8}, // 0xcc
	{kindInt, 1},
	{kindInt, 2},
	{kindInt, 4},
	{kindInt, 8}, // 0xd0
	{kindExt, 0},
	{kindExt, 0},
	{kindExt, 0},
	{kindExt, 0},
	{kindExt, 0}, // 0xd4
	{kindString, 1},
	{kindString, 2},
	{kindString, 4}, // 0xd9
	{kindArray, 2},
	{kindArray, 4}, // 0xdc
	{kindMap, 2},
	{kindMap, 4}, // 0xde
}

// maxDepth is the maximum number of nested arrays and maps. The check before decoding and the
// encoder enforce it.
const maxDepth = 100

// Check reports whether data is exactly one well-formed msgpack value that is safe to decode: no
// invalid code, no length beyond the remaining bytes, at most 100 nested arrays and maps, and no
// trailing bytes. The error wraps ErrLimit if the value is nested too deeply, otherwise
// ErrMalformed.
//
// Check is one pass without recursion or allocation. For five bytes of input, a decoder without
// these checks can allocate gigabytes, or overflow its stack and end the process. All decoding in
// this package calls Check first.
func Check(data []byte) error {
	if err := check(data); err != nil {
		return fmt.Errorf("codec: %w", err)
	}
	return nil
}

func check(data []byte) error {
	if len(data) > math.MaxInt32 {
		return fmt.Errorf("%w: %d bytes", ErrLimit, len(data))
	}
	end, err := skip(data, 0, maxDepth)
	if err != nil {
		return err
	}
	if end != len(data) {
		return fmt.Errorf("%w: %d bytes follow the value at byte %d", ErrMalformed, len(data)-end, end)
	}
	return nil
}

// skip validates the value at pos and returns its end. The value may have up to limit nested arrays
// and maps, at most maxDepth.
func skip(data []byte, pos, limit int) (int, error) {
	var stack [maxDepth]uint32 // remaining values of each enclosing level
	depth, left := 0, 1        // this level
	for {
		for left == 0 {
			if depth == 0 {
				return pos, nil
			}
			depth--
			left = int(stack[depth]) //nolint:gosec // depth is at least 0 here
		}
		left--
		t, next := scan(data, pos)
		rest := len(data) - next
		switch t.kind {
		case kindInvalid:
			return 0, malformed(data, pos)
		case kindString, kindBinary, kindExt:
			if t.size > rest {
				return 0, tooLong(t, pos, rest)
			}
			next += t.size
		case kindArray, kindMap:
			each := 1
			if t.kind == kindMap {
				each = 2
			}
			if t.size > rest/each {
				return 0, tooLong(t, pos, rest)
			}
			if depth == limit {
				return 0, errDepth()
			}
			stack[depth] = uint32(left) //nolint:gosec // at most len(data)
			depth++
			left = t.size * each
		default:
		}
		pos = next
	}
}

func malformed(data []byte, pos int) error {
	if pos >= len(data) {
		return fmt.Errorf("%w: cut short at byte %d", ErrMalformed, pos)
	}
	return fmt.Errorf("%w: bad or incomplete code 0x%02x at byte %d", ErrMalformed, data[pos], pos)
}

func tooLong(t token, pos, rest int) error {
	return fmt.Errorf("%w: %s of length %d at byte %d, with %d bytes left", ErrMalformed, t.kind, t.size, pos, rest)
}

func errDepth() error {
	return fmt.Errorf("%w: more than %d levels of arrays and maps", ErrLimit, maxDepth)
}
