// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/refold-io/refold/journal"
)

// Replay implements journal.Journal. It reads pages, and each page is one
// statement on whatever connection is free then.
func (j *Journal) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		next, last := max(from, 1), min(to, journal.MaxSequenceNr)
		for next <= last {
			events, more, err := j.readPage(ctx, id, next, last)
			if err != nil {
				yield(journal.Event{}, fmt.Errorf("postgres: replay %q: %w", id, err))
				return
			}
			for i := range events {
				if !yield(events[i], nil) {
					return
				}
			}
			if !more {
				return
			}
			next = events[len(events)-1].SequenceNr + 1
		}
		if err := journal.CheckID(id); err != nil {
			yield(journal.Event{}, fmt.Errorf("postgres: replay %q: %w", id, err))
		}
	}
}

// readPage reads the next events and reports whether there may be more.
func (j *Journal) readPage(ctx context.Context, id string, from, to uint64) (events []journal.Event, more bool, err error) {
	var highest uint64 // of those that would have been a page but for their bytes
	err = j.ask(ctx, id, &j.db.sql.replay, [][]byte{[]byte(id), int8Value(from), int8Value(to)}, func(values [][]byte) error {
		last := len(values) - 1
		if last < 0 || len(values[last]) != 8 {
			return errRow
		}
		highest = binary.BigEndian.Uint64(values[last])
		e, err := decodeRow(values[:last])
		if err != nil {
			return &journal.CorruptError{File: j.db.target, Offset: -1, Detail: fmt.Sprintf("an event of %q: %v", id, err)}
		}
		events = append(events, e)
		return nil
	})
	if err != nil || len(events) == 0 {
		return nil, false, err
	}
	last := events[len(events)-1].SequenceNr
	return events, last < to && (last < highest || len(events) == pageRecords), nil
}
