// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"iter"
	"time"

	"github.com/refold-io/refold/journal"
)

// lossyJournal is a journal that has lost a record, or that is slow to read.
type lossyJournal struct {
	journal.Journal
	missing uint64
	pause   time.Duration // before each record
}

func (h *lossyJournal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for e, err := range h.Journal.Replay(ctx, id, from, to) {
			if err == nil && e.SequenceNr == h.missing {
				continue
			}
			if h.pause > 0 {
				<-time.After(h.pause)
			}
			if ctx.Err() != nil {
				yield(journal.Event{}, context.Cause(ctx))
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
