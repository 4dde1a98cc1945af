// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

var (
	// ErrNotFound is returned when no snapshot matches.
	ErrNotFound = errors.New("snapshot: not found")
	// ErrClosed is returned by every operation on a store that was closed.
	ErrClosed = errors.New("snapshot: store closed")
	// ErrCorrupt is matched when snapshots match and none of them is readable.
	ErrCorrupt = errors.New("snapshot: corrupt")
	// ErrNewerVersion is returned for data that a newer version of Refold wrote. The data is not
	// modified.
	ErrNewerVersion = errors.New("snapshot: written by a newer version")
)

// Metadata names a snapshot.
type Metadata struct {
	// ID is the persistence ID.
	ID string
	// SequenceNr is the number of the last event that the snapshot covers, at least 1.
	SequenceNr uint64
	// Time is the timestamp of that event, in UTC and whole microseconds, within the years 1 to
	// 9999.
	Time time.Time
}

// Snapshot is the encoded state of one persistence ID at one sequence number.
type Snapshot struct {
	Metadata
	// Manifest describes the payload. A store does not interpret it.
	Manifest string
	// Payload is the encoded state.
	Payload []byte
}

// Store keeps snapshots. It is the interface that a plugin implements and that package snapshottest
// checks.
//
// All methods are safe for concurrent use and fail with ErrClosed after Close.
type Store interface {
	// Save stores a snapshot. When it returns nil, the snapshot is durable and visible to the next
	// Load. Save replaces a snapshot with the same ID and sequence number. Load never returns a
	// part of an interrupted Save. After an error the snapshot may still be stored as a whole, now
	// or later. Callers therefore save only states whose events are durable in the journal. The
	// payload is immutable and may be kept.
	Save(ctx context.Context, s Snapshot) error

	// Load returns the matching snapshot with the highest sequence number, or an older match if
	// newer ones cannot be read. It fails with ErrNotFound if no snapshot matches, and with an
	// error that matches ErrCorrupt if snapshots match but Load can read none of those that it
	// tries. It never returns ErrNotFound for a store that could not be read. The payload is
	// immutable and may be kept by both sides.
	Load(ctx context.Context, id string, c Criteria) (Snapshot, error)

	// List yields the metadata of all matches, the highest sequence number first. An error is
	// yielded once and last.
	List(ctx context.Context, id string, c Criteria) iter.Seq2[Metadata, error]

	// Delete deletes all matches. It is idempotent. It fails with ErrInvalid if
	// Criteria.CheckDelete returns an error.
	Delete(ctx context.Context, id string, c Criteria) error

	// Close waits for the calls in progress and releases all resources. A second Close does
	// nothing.
	Close() error
}

// Local is implemented by a Store that may be local to one node of a cluster, and by a journal with
// the same property. A store without it is shared by all nodes. Package sharding refuses to delete
// events of a shared journal that only a local snapshot covers. A wrapper of a Store forwards the
// call.
type Local interface {
	// Local reports whether only processes on this machine can read the data.
	Local() bool
}

const (
	maxIDLength = 512
	maxManifest = 4096
)

// Check returns an error unless a store can represent the snapshot. The error matches ErrTooLarge
// for a payload of more than maxSize bytes, otherwise ErrInvalid. Stores call it in Save.
func (s *Snapshot) Check(maxSize int64) error {
	switch {
	case s.SequenceNr == 0 || s.SequenceNr > math.MaxInt64:
		return fmt.Errorf("%w: sequence number %d is not between 1 and %d", ErrInvalid, s.SequenceNr, int64(math.MaxInt64))
	case s.Time.Before(time.Time{}) || s.Time.After(endOfTime()):
		return fmt.Errorf("%w: time %v is not between the years 1 and 9999", ErrInvalid, s.Time)
	case len(s.Manifest) > maxManifest:
		return fmt.Errorf("%w: manifest has %d bytes, at most %d are allowed", ErrInvalid, len(s.Manifest), maxManifest)
	case int64(len(s.Payload)) > maxSize:
		return fmt.Errorf("%w: payload has %d bytes, at most %d are allowed", ErrTooLarge, len(s.Payload), maxSize)
	}
	return CheckID(s.ID)
}

// CheckID returns an error that matches ErrInvalid unless id is 1 to 512 bytes of UTF-8 without
// NUL. Stores call it in Load, List and Delete.
func CheckID(id string) error {
	if id == "" || len(id) > maxIDLength {
		return fmt.Errorf("%w: persistence ID has %d bytes, want 1 to %d", ErrInvalid, len(id), maxIDLength)
	}
	if !utf8.ValidString(id) || strings.IndexByte(id, 0) >= 0 {
		return fmt.Errorf("%w: persistence ID %.64q is not UTF-8 without NUL", ErrInvalid, id)
	}
	return nil
}

// Criteria selects snapshots of one persistence ID. All bounds are inclusive. A zero bound has no
// effect, so the zero value matches every snapshot.
type Criteria struct {
	MinSequenceNr, MaxSequenceNr uint64
	MinTime, MaxTime             time.Time
	// All permits a deletion without any bound. Store.Delete fails with ErrInvalid if the criteria
	// have no bound and All is not set. Reads ignore it.
	All bool
}

// Latest matches every snapshot.
func Latest() Criteria { return Criteria{}.Bounded() }

// UpTo matches the snapshots at or below a sequence number. UpTo(0) matches none.
func UpTo(seqNr uint64) Criteria {
	c := Latest()
	if c.MaxSequenceNr = seqNr; seqNr == 0 {
		c.MinSequenceNr, c.MaxSequenceNr = math.MaxInt64, 1
	}
	return c
}

// At matches the snapshot at exactly one sequence number.
func At(seqNr uint64) Criteria {
	c := UpTo(seqNr)
	c.MinSequenceNr = max(c.MinSequenceNr, seqNr)
	return c
}

// Bounded returns c with explicit upper bounds: the largest sequence number and the latest time
// instead of zero. Stores call it before they compare or change the bounds.
func (c Criteria) Bounded() Criteria {
	if c.MaxSequenceNr == 0 {
		c.MaxSequenceNr = math.MaxInt64
	}
	if c.MaxTime.IsZero() {
		c.MaxTime = endOfTime()
	}
	return c
}

// Matches reports whether the snapshot with metadata m is within the bounds.
func (c Criteria) Matches(m Metadata) bool {
	c = c.Bounded()
	return m.SequenceNr >= c.MinSequenceNr && m.SequenceNr <= c.MaxSequenceNr &&
		!m.Time.Before(c.MinTime) && !m.Time.After(c.MaxTime)
}

// CheckDelete returns an error that matches ErrInvalid if c has no bound and All is not set. Stores
// call it in Delete.
func (c Criteria) CheckDelete() error {
	b := c.Bounded()
	if !c.All && b.MinSequenceNr <= 1 && b.MaxSequenceNr >= math.MaxInt64 && b.anyTime() {
		return fmt.Errorf("%w: criteria without a bound delete every snapshot: set Criteria.All", ErrInvalid)
	}
	return nil
}

// anyTime reports whether the criteria have no time bound.
func (c Criteria) anyTime() bool {
	return c.MinTime.IsZero() && (c.MaxTime.IsZero() || !c.MaxTime.Before(endOfTime()))
}

// endOfTime is the latest supported time: the end of the year 9999.
func endOfTime() time.Time {
	return time.Date(9999, time.December, 31, 23, 59, 59, 999_999_000, time.UTC)
}

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
