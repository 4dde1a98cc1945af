// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

import "math/bits"

const (
	depth = 4
	// maxWidth bounds the counters of a row: 512 KiB.
	maxWidth = 1 << 20
)

// sketch estimates how often each of many entities was needed, in little memory: rows of
// counters of 4 bits, in each of which an entity has one, shared with others. All are halved now and
// then, so that what was is forgotten.
type sketch struct {
	rows    [depth][]uint64 // 16 counters each
	mask    uint64
	counted int
	period  int
}

func newSketch(limit int) *sketch {
	width := 4 * (1 << bits.Len(uint(max(1, limit)-1)))
	if width <= 0 || width > maxWidth {
		width = maxWidth
	}
	s := &sketch{mask: uint64(width) - 1, period: 10 * max(1, limit)}
	for i := range s.rows {
		s.rows[i] = make([]uint64, max(1, width/16))
	}
	return s
}

// at returns where the counter of a hash is in a row.
func (s *sketch) at(row int, hash uint64) (word, shift uint64) {
	i := mix(hash+uint64(row)) & s.mask //nolint:gosec // 0 to 3
	return i / 16, i % 16 * 4
}

func (s *sketch) add(hash uint64) {
	added := false
	for row := range s.rows {
		word, shift := s.at(row, hash)
		if s.rows[row][word]>>shift&15 < 15 {
			s.rows[row][word] += 1 << shift
			added = true
		}
	}
	if !added {
		return
	}
	if s.counted++; s.counted >= s.period {
		s.counted = 0
		for _, row := range s.rows {
			for i := range row {
				row[i] = row[i] >> 1 & 0x7777777777777777
			}
		}
	}
}

// estimate returns how often an entity was needed, or more, up to 15.
func (s *sketch) estimate(hash uint64) uint64 {
	least := uint64(15)
	for row := range s.rows {
		word, shift := s.at(row, hash)
		least = min(least, s.rows[row][word]>>shift&15)
	}
	return least
}

// hashOf is FNV-1a.
func hashOf(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return h
}

// mix spreads the bits of a number over all of the result, one to one.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
