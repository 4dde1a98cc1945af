// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package hash spreads the bits of numbers. All nodes compute the same values, and these decide on the
// placement of shards, so the function never changes.
package hash

// Golden is the increment of SplitMix64. Multiples of it are spread evenly over all numbers.
const Golden = 0x9e3779b97f4a7c15

// Mix is the finalizer of SplitMix64, a bijection that spreads the bits of a number.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
