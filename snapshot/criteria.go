// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"math"
	"time"
)

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
