// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"math/bits"
)

// bitmap is a set of members by their index. nil is the empty set. It is immutable except during
// construction.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func (b bitmap) set(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitmap) with(i, n int) bitmap {
	if b.has(i) {
		return b
	}
	more := newBitmap(n)
	copy(more, b)
	more.set(i)
	return more
}

// union returns the union of two sets of n members. It is b itself if b contains all.
func (b bitmap) union(other bitmap, n int) bitmap {
	if other.in(b) {
		return b
	}
	all := newBitmap(n)
	copy(all, b)
	for i, word := range other {
		all[i] |= word
	}
	return all
}

// in reports whether b is a subset of other.
func (b bitmap) in(other bitmap) bool {
	for i, word := range b {
		if i >= len(other) && word != 0 || i < len(other) && word&^other[i] != 0 {
			return false
		}
	}
	return true
}

func (b bitmap) count() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// nth returns the index of the k-th member of the set, counted from 0.
func (b bitmap) nth(k int) int {
	for i, word := range b {
		ones := bits.OnesCount64(word)
		if k >= ones {
			k -= ones
			continue
		}
		for ; k > 0; k-- {
			word &= word - 1
		}
		return i*64 + bits.TrailingZeros64(word)
	}
	return -1
}

func (b bitmap) each(f func(int)) {
	for i, word := range b {
		for ; word != 0; word &= word - 1 {
			f(i*64 + bits.TrailingZeros64(word))
		}
	}
}

func full(n int) bitmap {
	all := newBitmap(n)
	for i := range all {
		all[i] = ^uint64(0)
	}
	if n%64 != 0 {
		all[len(all)-1] = 1<<(n%64) - 1
	}
	return all
}
