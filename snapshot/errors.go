// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid is matched by errors about invalid snapshots, criteria or configurations: an empty
	// ID, a sequence number of 0, a time out of range.
	ErrInvalid = errors.New("snapshot: invalid argument")
	// ErrTooLarge is returned for a snapshot above the size limit of the store.
	ErrTooLarge = errors.New("snapshot: too large")
	// ErrBreakerOpen is returned when the circuit breaker is open because recent calls failed. The
	// store was not called.
	ErrBreakerOpen = errors.New("snapshot: circuit breaker open")
	// ErrCallTimeout is returned when a call exceeded BreakerConfig.CallTimeout.
	ErrCallTimeout = errors.New("snapshot: call timed out")
)

// CorruptError names a stored snapshot that can't be read. It matches ErrCorrupt.
type CorruptError struct {
	// File is the damaged file, or another name of the place in the store.
	File string
	// Reason is the cause.
	Reason error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("snapshot: corrupt: %s: %v", e.File, e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the reason.
func (e *CorruptError) Unwrap() error { return e.Reason }
