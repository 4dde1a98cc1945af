// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"bytes"
	"testing"

	"github.com/refold-io/refold/transport"
)

// decompress rejects a payload, or returns at most as many bytes as the limit.
func FuzzDecompress(f *testing.F) {
	const limit = 1 << 16
	f.Add([]byte(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	if small, ok := transport.Compress(bytes.Repeat([]byte("refold"), 1000)); ok {
		f.Add(small)
	}
	if large, ok := transport.Compress(make([]byte, limit+1)); ok {
		f.Add(large)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := transport.Decompress(b, limit)
		if err == nil && len(got) > limit {
			t.Errorf("%d bytes were decompressed to %d bytes, want at most %d", len(b), len(got), limit)
		}
		small, ok := transport.Compress(b)
		if !ok {
			return
		}
		if back, err := transport.Decompress(small, len(b)); err != nil || !bytes.Equal(back, b) {
			t.Errorf("%x was compressed and decompressed to %x, %v", b, back, err)
		}
	})
}
