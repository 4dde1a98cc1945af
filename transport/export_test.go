// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

// Compress and Decompress are what large payloads go through.
var (
	Compress   = compress
	Decompress = decompress
)
