// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"math"
	"math/bits"
)

// The memory that decoding takes is limited to a multiple of the data and a
// fixed share. The decoder pays before it allocates; the encoder adds up the
// same sums, so that nothing is written that could not be read.
const (
	costPerByte = 64
	costFree    = 1<<20 - 1<<16 // the rest of 1 MiB is for what is not counted
)

// costLimit returns what decoding so many bytes may cost.
func costLimit(size int) int { return costPerByte*size + costFree }

// costNew returns what it costs to allocate so many bytes, with the rounding up
// of the allocator.
func costNew(size uintptr) int {
	if size == 0 {
		return 0
	}
	if size > math.MaxInt/4 {
		return math.MaxInt / 4
	}
	return int(size + size/4 + 8)
}

// costSlice returns what it costs to make a slice. An empty one is not nil.
func costSlice(n int, elem uintptr) int {
	return 32 + costArray(n, elem)
}

// costArray returns what it costs to allocate n elements together.
func costArray(n int, elem uintptr) int {
	hi, size := bits.Mul(uint(n), uint(elem))
	if hi > 0 {
		return math.MaxInt / 4
	}
	return costNew(uintptr(size))
}

// costMap returns what it costs to make and fill a map. Go keeps entries in
// groups of eight, with more groups than needed and, once a table was too full,
// up to twice as many; large keys and elements are kept outside.
func costMap(n int, key, elem uintptr) int {
	cost := 48 + costNew(key) + costNew(elem) // the map, and what entries are read into
	if key > 128 {
		cost += costArray(n, key+key/4+8)
		key = 8
	}
	if elem > 128 {
		cost += costArray(n, elem+elem/4+8)
		elem = 8
	}
	slots := 8
	if n > 8 {
		slots = 4 * n
	}
	return cost + costArray(slots, slotSize(key, elem)+1)
}

// slotSize returns what an entry takes in a group, where it is aligned, and
// where an element of no size takes room nevertheless.
func slotSize(key, elem uintptr) uintptr { return (key + max(elem, 1) + 7) &^ 7 }

func errBudget(size int) error {
	return fmt.Errorf("%w: %d bytes of data would take more than %d in memory", ErrLimit, size, costLimit(size))
}
