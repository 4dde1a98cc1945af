// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/refold-io/refold/journal"
)

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("too large")
	for want, c := range map[string]struct {
		err      error
		sentinel error
	}{
		`journal: conflict: "a|1": expected sequence number 3, found 5`: {
			&journal.ConflictError{ID: "a|1", Expected: 3, Highest: 5}, journal.ErrConflict,
		},
		`journal: write to "a|1" rejected: too large`: {
			&journal.RejectedError{ID: "a|1", Reason: cause}, journal.ErrRejected,
		},
		`journal: event 4 of "a|1" rejected: too large`: {
			&journal.RejectedError{ID: "a|1", SequenceNr: 4, Reason: cause}, journal.ErrRejected,
		},
		`journal: corrupt: 000003.log: bad checksum`: {
			&journal.CorruptError{File: "000003.log", Offset: -1, Detail: "bad checksum"}, journal.ErrCorrupt,
		},
		`journal: corrupt: 000003.log at offset 0: bad checksum`: {
			&journal.CorruptError{File: "000003.log", Detail: "bad checksum"}, journal.ErrCorrupt,
		},
		`journal: gap in the history of "a|1": event 4 is missing, found 6`: {
			&journal.GapError{ID: "a|1", Want: 4, Got: 6}, journal.ErrHistoryGap,
		},
		`journal: gap in the history of "a|1": event 4 and all later events are missing`: {
			&journal.GapError{ID: "a|1", Want: 4}, journal.ErrHistoryGap,
		},
		`journal: replay filter: "a|1": event 4 of writer "x" comes after number 5 of writer "y"`: {
			&journal.ViolationError{ID: "a|1", SequenceNr: 4, Writer: "x", Detail: "comes after number", OtherSequenceNr: 5, OtherWriter: "y"}, journal.ErrViolation,
		},
	} {
		if c.err.Error() != want {
			t.Errorf("got %q, want %q", c.err, want)
		}
		wrapped := fmt.Errorf("append: %w", c.err)
		if !errors.Is(wrapped, c.sentinel) {
			t.Errorf("the error %v does not match %v", wrapped, c.sentinel)
		}
		for _, other := range []error{
			journal.ErrConflict, journal.ErrRejected, journal.ErrSkipped, journal.ErrNotSent, journal.ErrUnavailable, journal.ErrClosed,
			journal.ErrCorrupt, journal.ErrHistoryGap, journal.ErrNewerVersion, journal.ErrInvalid, journal.ErrContract, journal.ErrViolation,
		} {
			if other != c.sentinel && errors.Is(wrapped, other) { //nolint:errorlint // which sentinel it is
				t.Errorf("the error %v matches %v, want no match", wrapped, other)
			}
		}
	}
	if err := error(&journal.RejectedError{Reason: cause}); !errors.Is(err, cause) {
		t.Error("a RejectedError does not match its Reason")
	}
}

func TestNotStored(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&journal.ConflictError{}, &journal.RejectedError{Reason: errors.New("bad")}, journal.ErrSkipped,
		fmt.Errorf("%w: %w", journal.ErrNotSent, journal.ErrUnavailable), fmt.Errorf("leveldb: %w", journal.ErrConflict),
	} {
		if !journal.NotStored(err) {
			t.Errorf("NotStored(%v) = false, want true", err)
		}
	}
	for _, err := range []error{
		nil, journal.ErrUnavailable, journal.ErrClosed, journal.ErrContract, journal.ErrCallTimeout,
		&journal.CorruptError{}, context.DeadlineExceeded, errors.New("connection reset"),
	} {
		if journal.NotStored(err) {
			t.Errorf("NotStored(%v) = true, want false", err)
		}
	}
}
