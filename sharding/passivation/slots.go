// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

import "math/bits"

// slots is how many numbers a slotSet can hold, from 0.
const slots = 64 * 64

// slotSet is a set of small numbers in which the next lower one is found in fixed
// time.
type slotSet struct {
	groups uint64 // which words are not empty
	words  [64]uint64
}

func (s *slotSet) set(i uint) {
	s.words[i/64] |= 1 << (i % 64)
	s.groups |= 1 << (i / 64)
}

func (s *slotSet) clear(i uint) {
	s.words[i/64] &^= 1 << (i % 64)
	if s.words[i/64] == 0 {
		s.groups &^= 1 << (i / 64)
	}
}

// atMost returns the largest number of the set that is not above i.
func (s *slotSet) atMost(i uint) (uint, bool) {
	group := i / 64
	word := s.words[group] << (63 - i%64) >> (63 - i%64)
	if word == 0 {
		lower := s.groups & (1<<group - 1)
		if lower == 0 {
			return 0, false
		}
		group = uint(63 - bits.LeadingZeros64(lower))
		word = s.words[group]
	}
	return group*64 + uint(63-bits.LeadingZeros64(word)), true
}
