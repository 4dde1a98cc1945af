// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"

	"github.com/klauspost/compress/s2"
)

// compress returns a payload in fewer bytes, or false if that is not worth it.
func compress(payload []byte) ([]byte, bool) {
	out := s2.Encode(nil, payload)
	if len(out) > len(payload)-len(payload)/8 {
		return nil, false
	}
	return out, true
}

// decompress returns what compress was given. What it claims to be is compared
// with the limit before anything is allocated.
func decompress(payload []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(payload)
	if err != nil {
		return nil, fmt.Errorf("transport: decompress %d bytes: %w", len(payload), err)
	}
	if n > limit {
		return nil, fmt.Errorf("%w: %d bytes after decompression, %d are allowed", ErrTooLarge, n, limit)
	}
	out, err := s2.Decode(nil, payload)
	if err != nil {
		return nil, fmt.Errorf("transport: decompress %d bytes: %w", len(payload), err)
	}
	return out, nil
}
