// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package hash_test

import (
	"testing"

	"github.com/refold-io/refold/internal/hash"
)

// The first numbers of SplitMix64 with the seed 0, as published. Nodes of different releases must agree
// on them.
func TestMix(t *testing.T) {
	t.Parallel()
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := hash.Mix(uint64(i+1) * hash.Golden); got != want {
			t.Errorf("number %d is %#x, want %#x", i, got, want)
		}
	}
}
