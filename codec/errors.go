// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import "errors"

var (
	// ErrNotRegistered is wrapped by the error about a Go type that has no
	// name in the registry.
	ErrNotRegistered = errors.New("codec: type is not registered")
	// ErrUnknown is wrapped by the error about a manifest that the registry
	// can't read: an unknown name, version or format.
	ErrUnknown = errors.New("codec: unknown manifest")
	// ErrMalformed is wrapped by the errors about bytes that are damaged, cut
	// short, followed by more, or do not fit the type they are read into.
	ErrMalformed = errors.New("codec: malformed data")
	// ErrLimit is wrapped by the errors about values that are nested too
	// deeply, and about data that would take far more memory than its size.
	ErrLimit = errors.New("codec: limit exceeded")
)
