// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"iter"
	"math"
	"time"
)

var (
	// ErrNotFound says that no snapshot matches.
	ErrNotFound = errors.New("snapshot: not found")
	// ErrClosed is returned by every operation on a store that was closed.
	ErrClosed = errors.New("snapshot: store closed")
	// ErrCorrupt says that stored snapshots match and none of them is readable.
	ErrCorrupt = errors.New("snapshot: corrupt")
	// ErrNewerVersion says that the stored data was written by a newer version
	// of Refold and is left untouched.
	ErrNewerVersion = errors.New("snapshot: written by a newer version")
)

// Metadata names a snapshot.
type Metadata struct {
	// ID is the persistence ID.
	ID string
	// SequenceNr is the number of the last event that the snapshot covers, at
	// least 1.
	SequenceNr uint64
	// Time is the timestamp of that event, in UTC and whole microseconds, within
	// the years 1 to 9999.
	Time time.Time
}

// Snapshot is the encoded state of one persistence ID at one sequence number.
type Snapshot struct {
	Metadata
	// Manifest says what the payload is; it is not interpreted by a store.
	Manifest string
	// Payload is the encoded state.
	Payload []byte
}

// Store keeps snapshots. It is the SPI that a plugin implements and that
// snapshottest checks.
//
// All methods are safe for concurrent use and fail with ErrClosed after Close.
type Store interface {
	// Save stores a snapshot; when it returns nil the snapshot is durable and
	// visible to the next Load. It replaces the snapshot of the same ID and
	// sequence number. A save that is cut short leaves no part of a snapshot that
	// a Load could return. One that fails may still be stored, now or later, as a
	// whole: so a caller saves only what is true, which a state that is durable in
	// the journal stays for ever. The payload is immutable and may be kept.
	Save(ctx context.Context, s Snapshot) error

	// Load returns the matching snapshot with the highest sequence number, or
	// an older match when a younger one can't be read. It fails with
	// ErrNotFound when there is no match, and with an error that matches
	// ErrCorrupt when there are matches and none of those tried is readable:
	// never with ErrNotFound for a store that could not be read. The payload is
	// immutable and may be kept by both sides.
	Load(ctx context.Context, id string, c Criteria) (Snapshot, error)

	// List yields the metadata of all matches, the highest sequence number
	// first. An error is yielded once and last.
	List(ctx context.Context, id string, c Criteria) iter.Seq2[Metadata, error]

	// Delete deletes all matches. It is idempotent.
	Delete(ctx context.Context, id string, c Criteria) error

	// Close waits for the calls in progress and frees what the store holds. A
	// second Close does nothing.
	Close() error
}

// Criteria selects snapshots of one persistence ID. All four bounds are
// inclusive and literal; the zero value matches nothing that is ever stored.
// Start from Latest and narrow it.
type Criteria struct {
	MinSequenceNr, MaxSequenceNr uint64
	MinTime, MaxTime             time.Time
}

// Latest matches every snapshot.
func Latest() Criteria {
	return Criteria{MaxSequenceNr: math.MaxInt64, MaxTime: endOfTime()}
}

// UpTo matches the snapshots at or below a sequence number.
func UpTo(seqNr uint64) Criteria {
	c := Latest()
	c.MaxSequenceNr = seqNr
	return c
}

// At matches the snapshot at exactly one sequence number.
func At(seqNr uint64) Criteria {
	c := UpTo(seqNr)
	c.MinSequenceNr = seqNr
	return c
}

// Matches reports whether the snapshot that m names is within the bounds.
func (c Criteria) Matches(m Metadata) bool {
	return m.SequenceNr >= c.MinSequenceNr && m.SequenceNr <= c.MaxSequenceNr &&
		!m.Time.Before(c.MinTime) && !m.Time.After(c.MaxTime)
}

// endOfTime is the last instant that a count of microseconds in an int64 holds
// with room to spare: the end of the year 9999.
func endOfTime() time.Time {
	return time.Date(9999, time.December, 31, 23, 59, 59, 999_999_000, time.UTC)
}
