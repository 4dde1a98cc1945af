// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"unicode/utf16"
)

// SliceCount is the number of slices that persistence IDs are spread over. It never changes.
const SliceCount = 1024

// SliceOf returns the slice of a persistence ID, from 0 to 1,023: the absolute value of the
// remainder by 1,024 of the string hash of Java (the sum of c[i]*31^(n-1-i) over UTF-16 units as a
// signed 32-bit number). Akka Persistence computes the same slices, so journals can be migrated.
func SliceOf(id string) int {
	var h int32
	for _, r := range id {
		if r1, r2 := utf16.EncodeRune(r); r1 != '\uFFFD' {
			h = h*31 + r1
			r = r2
		}
		h = h*31 + r
	}
	slice := int(h % SliceCount)
	return max(slice, -slice)
}

// Slices is a range of slices. The zero value is all of them.
type Slices struct {
	// First is the first slice of the range.
	First int
	// Count is the number of slices in the range. 0 means all slices and requires First to be 0.
	Count int
}

// SplitSlices divides all slices into n ranges of the same size, for n workers. The error matches
// ErrInvalid if n does not divide 1,024.
func SplitSlices(n int) ([]Slices, error) {
	if n < 1 || SliceCount%n != 0 {
		return nil, fmt.Errorf("%w: %d workers: the number has to divide %d slices", ErrInvalid, n, SliceCount)
	}
	ranges := make([]Slices, n)
	for i := range ranges {
		ranges[i] = Slices{First: i * SliceCount / n, Count: SliceCount / n}
	}
	return ranges, nil
}

// Contains reports whether a slice is in the range.
func (s Slices) Contains(slice int) bool {
	first, last := s.Bounds()
	return first <= slice && slice <= last
}

// Bounds returns the first and the last slice of the range.
func (s Slices) Bounds() (first, last int) {
	if s.Count == 0 {
		return 0, SliceCount - 1
	}
	return s.First, s.First + s.Count - 1
}

// String returns the first and the last slice, as in "0-255".
func (s Slices) String() string {
	first, last := s.Bounds()
	return fmt.Sprintf("%d-%d", first, last)
}

func (s Slices) check() error {
	if s.First < 0 || s.Count < 0 || s.Count > SliceCount-s.First || s.Count == 0 && s.First != 0 {
		return fmt.Errorf("%d slices from %d on are not within 0-%d", s.Count, s.First, SliceCount-1)
	}
	return nil
}
