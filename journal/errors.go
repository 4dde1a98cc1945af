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
	// ErrSkipped says that a write was not stored because an earlier one of the
	// same ID was not.
	ErrSkipped = errors.New("journal: skipped behind a write that was not stored")
	// ErrNotSent says that a write was not stored because it never left: the
	// journal or its writer was closed, or the circuit breaker was open.
	ErrNotSent = errors.New("journal: write not sent")
	// ErrUnavailable says that the connection to the store was lost or could
	// not be made. What was in flight has an unknown outcome unless it is also ErrNotSent.
	ErrUnavailable = errors.New("journal: store unavailable")
	// ErrClosed is returned by every operation on a journal that was closed.
	ErrClosed = errors.New("journal: closed")
	// ErrCorrupt is matched by a *CorruptError.
	ErrCorrupt = errors.New("journal: corrupt")
	// ErrHistoryGap is matched by a *GapError.
	ErrHistoryGap = errors.New("journal: gap in the history")
	// ErrNewerVersion says that the stored data was written by a newer version
	// of Refold and is left untouched.
	ErrNewerVersion = errors.New("journal: written by a newer version")
	// ErrInvalid is matched by the errors about arguments that no journal
	// accepts, such as a bad persistence ID.
	ErrInvalid = errors.New("journal: invalid argument")
)

// ConflictError says that a write was not stored because the journal holds
// another highest sequence number than the write expected.
type ConflictError struct {
	ID string
	// Expected is the Expect of the write.
	Expected uint64
	// Highest is the number that the journal holds, 0 if it is not known.
	Highest uint64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("journal: conflict: %q: expected sequence number %d, found %d", e.ID, e.Expected, e.Highest)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// RejectedError says that a write was not stored and never can be as it is: it
// is too large, or it can't be encoded.
type RejectedError struct {
	ID string
	// SequenceNr is the number of the event that is to blame, 0 if it is the
	// write as a whole.
	SequenceNr uint64
	// Reason says what is wrong with it.
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

// CorruptError says where stored data is damaged.
type CorruptError struct {
	// File is the damaged file, or whatever names the place in the store.
	File string
	// Offset is the position of the damage in bytes, -1 if it is not known.
	Offset int64
	// Detail says what is wrong there.
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

// GapError says that a record is missing from a history.
type GapError struct {
	ID string
	// Want is the sequence number that had to follow, Got the one found
	// instead: 0 if the history ended.
	Want, Got uint64
}

func (e *GapError) Error() string {
	if e.Got == 0 {
		return fmt.Sprintf("journal: gap in the history of %q: event %d is missing, and so is all behind it", e.ID, e.Want)
	}
	return fmt.Sprintf("journal: gap in the history of %q: event %d is missing, found %d", e.ID, e.Want, e.Got)
}

// Is reports whether target is ErrHistoryGap.
func (e *GapError) Is(target error) bool { return target == ErrHistoryGap }

// NotStored reports whether an error in a slot of Append means that the write
// is surely not stored. It is false for nil and for an unknown outcome.
func NotStored(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrRejected) || errors.Is(err, ErrSkipped) || errors.Is(err, ErrNotSent)
}

// ErrContract is wrapped by errors about a plugin that violates the contract of Journal: Append
// panicked, or returned a wrong number of slots. The outcome of the writes is unknown.
var ErrContract = errors.New("journal: contract broken by the plugin")
