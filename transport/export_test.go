// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

// Compress and Decompress compress and decompress large payloads.
var (
	Compress   = compress
	Decompress = decompress
)
