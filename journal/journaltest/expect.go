// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"
	"slices"

	"github.com/refold-io/refold/journal"
)

// wantHistory checks all that is stored for an ID: the events of the writes in
// this order, but for the first deleted ones, and the highest number.
func (f *fixture) wantHistory(id string, deleted int, writes ...journal.Write) {
	f.Helper()
	want := eventsOf(writes...)
	f.wantEvents(id, f.replay(id, 0, maxSeq), want[deleted:])
	f.wantHighest(id, uint64(len(want)))
}

func (f *fixture) wantHighest(id string, want uint64) {
	f.Helper()
	if got := f.highest(id); got != want {
		f.Errorf("HighestSequenceNr(%.40q) = %d, want %d", id, got, want)
	}
}

func (f *fixture) wantEvents(id string, got, want []journal.Event) {
	f.Helper()
	if !slices.Equal(numbers(got), numbers(want)) {
		f.Errorf("Replay of %.40q yields %s, want %s", id, brief(numbers(got)), brief(numbers(want)))
		return
	}
	for i := range want {
		if d := diff(&got[i], &want[i]); d != "" {
			f.Errorf("event %d of %.40q: %s", want[i].SequenceNr, id, d)
			return
		}
	}
}

// wantConflict checks the slot of a write that came too late or too early.
func (f *fixture) wantConflict(err error, w journal.Write, highest uint64) {
	f.Helper()
	conflict, ok := errors.AsType[*journal.ConflictError](err)
	switch {
	case !ok || !errors.Is(err, journal.ErrConflict):
		f.Errorf("Append to %q expecting %d returned %v, want a *ConflictError", w.ID, w.Expect, err)
	case conflict.ID != w.ID || conflict.Expected != w.Expect || conflict.Highest != 0 && conflict.Highest != highest:
		f.Errorf("conflict says %+v, want {%s %d %d}, or 0 for the last", *conflict, w.ID, w.Expect, highest)
	}
}

// wantRejected checks the slot of a write that can't be stored.
func (f *fixture) wantRejected(err error, w journal.Write) {
	f.Helper()
	rejected, ok := errors.AsType[*journal.RejectedError](err)
	switch {
	case !ok || !errors.Is(err, journal.ErrRejected):
		f.Errorf("Append to %.40q returned %v, want a *RejectedError", w.ID, err)
	case rejected.ID != w.ID || rejected.Reason == nil:
		f.Errorf("rejection says ID %.40q and reason %v, want %.40q and some reason", rejected.ID, rejected.Reason, w.ID)
	}
}
