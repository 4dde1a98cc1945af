// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid says that a snapshot or a configuration can't be accepted as
	// it is: an empty ID, a sequence number of 0, a time out of range.
	ErrInvalid = errors.New("snapshot: invalid argument")
	// ErrTooLarge says that a snapshot is larger than the store's limit.
	ErrTooLarge = errors.New("snapshot: too large")
	// ErrBreakerOpen says that a Guarded store was not called because the calls
	// before failed.
	ErrBreakerOpen = errors.New("snapshot: circuit breaker open")
	// ErrCallTimeout says that the time of a call through a Guarded store was up
	// before the store answered.
	ErrCallTimeout = errors.New("snapshot: call timed out")
)

// CorruptError names a stored snapshot that can't be read. It matches ErrCorrupt.
type CorruptError struct {
	// File is the damaged file, or whatever names the place in the store.
	File string
	// Reason says what is wrong with it.
	Reason error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("snapshot: corrupt: %s: %v", e.File, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the reason.
func (e *CorruptError) Unwrap() error { return e.Reason }
