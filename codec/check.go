// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"math"
)

// maxDepth is how many arrays and maps may be nested. Both the check before
// decoding and the encoder hold it.
const maxDepth = 100

// Check tells whether data is exactly one well-formed msgpack value that is
// safe to decode: no invalid code, no length beyond the bytes that are left, at
// most 100 nested arrays and maps, and nothing behind it. The error wraps
// ErrLimit if it is nested too deeply, else ErrMalformed.
//
// Check is one pass without recursion or allocation. Without it a decoder that
// believes what it reads allocates gigabytes for five bytes, or overflows its
// stack, which ends the process. Everything in this package that decodes calls
// it first.
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

// skip returns where the value at pos ends, having checked it all the way. It
// may hold up to limit nested arrays and maps, which is at most maxDepth.
func skip(data []byte, pos, limit int) (int, error) {
	var stack [maxDepth]uint32 // values still to come at each level outside this one
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
