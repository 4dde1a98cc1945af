// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrConflict is matched by a *ConflictError.
	ErrConflict = errors.New("journal: conflict: another writer appended")
	// ErrRejected is matched by a *RejectedError.
	ErrRejected = errors.New("journal: write rejected")
	// ErrSkipped is the slot of a write that was not stored because an earlier write of the same ID
	// was not stored.
	ErrSkipped = errors.New("journal: write skipped: an earlier write of the same ID was not stored")
	// ErrNotSent is the slot of a write that was never sent to the store: the journal or its writer
	// was closed, or the circuit breaker was open.
	ErrNotSent = errors.New("journal: write not sent")
	// ErrUnavailable is returned when the connection to the store was lost or could not be
	// established. The outcome of a write in flight is unknown, unless the error also matches
	// ErrNotSent.
	ErrUnavailable = errors.New("journal: store unavailable")
	// ErrClosed is returned by every operation on a journal that was closed.
	ErrClosed = errors.New("journal: closed")
	// ErrCorrupt is matched by a *CorruptError.
	ErrCorrupt = errors.New("journal: corrupt")
	// ErrHistoryGap is matched by a *GapError.
	ErrHistoryGap = errors.New("journal: gap in the history")
	// ErrNewerVersion is returned for data that a newer version of Refold wrote. The data is not
	// modified.
	ErrNewerVersion = errors.New("journal: written by a newer version")
	// ErrInvalid is matched by the errors about arguments that no journal accepts, such as a bad
	// persistence ID.
	ErrInvalid = errors.New("journal: invalid argument")
)

// ConflictError reports a write that was not stored because its Expect differs from the highest
// sequence number in the journal.
type ConflictError struct {
	ID string
	// Expected is the Expect of the write.
	Expected uint64
	// Highest is the highest sequence number in the journal, 0 if unknown.
	Highest uint64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("journal: conflict: %q: expected sequence number %d, found %d", e.ID, e.Expected, e.Highest)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// RejectedError reports a write that was not stored and cannot be stored in this form, because it
// is too large or cannot be encoded.
type RejectedError struct {
	ID string
	// SequenceNr is the number of the invalid event, 0 if the write as a whole is invalid.
	SequenceNr uint64
	// Reason is the cause.
	Reason error
}

func (e *RejectedError) Error() string {
	if e.SequenceNr == 0 {
		return fmt.Sprintf("journal: write to %q rejected: %v", e.ID, e.Reason)
	}
	return fmt.Sprintf("journal: event %d of %q rejected: %v", e.SequenceNr, e.ID, e.Reason)
}

// Is reports whether target is ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// Unwrap returns the reason.
func (e *RejectedError) Unwrap() error { return e.Reason }

// CorruptError reports damaged data in the store.
type CorruptError struct {
	// File is the damaged file, or another name of the place in the store.
	File string
	// Offset is the position of the damage in bytes, -1 if unknown.
	Offset int64
	// Detail describes the damage.
	Detail string
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("journal: corrupt: %s: %s", e.File, e.Detail)
	}
	return fmt.Sprintf("journal: corrupt: %s at offset %d: %s", e.File, e.Offset, e.Detail)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// GapError reports a missing record in the history of a persistence ID.
type GapError struct {
	ID string
	// Want is the missing sequence number. Got is the number found instead, 0 if the history ended.
	Want, Got uint64
}

func (e *GapError) Error() string {
	if e.Got == 0 {
		return fmt.Sprintf("journal: gap in the history of %q: event %d and all later events are missing", e.ID, e.Want)
	}
	return fmt.Sprintf("journal: gap in the history of %q: event %d is missing, found %d", e.ID, e.Want, e.Got)
}

// Is reports whether target is ErrHistoryGap.
func (e *GapError) Is(target error) bool { return target == ErrHistoryGap }

// NotStored reports whether an error in a slot of Append means that the write is not stored and
// never will be. It is false for nil and for an unknown outcome.
func NotStored(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrRejected) || errors.Is(err, ErrSkipped) || errors.Is(err, ErrNotSent)
}

// ErrContract is wrapped by errors about a plugin that violates the contract of Journal: Append
// panicked, or returned a wrong number of slots. The outcome of the writes is unknown.
var ErrContract = errors.New("journal: contract broken by the plugin")
