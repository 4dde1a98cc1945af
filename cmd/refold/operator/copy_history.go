// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
)

// PlaceholderWriter is the writer of the fences that Copy appends for records that the source has
// deleted. Copy deletes these fences at the end of a persistence ID.
const PlaceholderWriter = "refold-copy"

func isPlaceholder(e *journal.Event) bool { return e.IsFence() && e.Writer == PlaceholderWriter }

// Limits of one write. An append contains several writes, of different IDs.
const (
	writeRecords = 500
	writeBytes   = 256 << 10
)

// copyOne copies the missing records and snapshots of an ID. Writes of a killed copy may reach the
// target after this Copy has compared the target with the source. If these writes match the source,
// copyOne continues after them.
func (c *copier) copyOne(ctx context.Context, id string) ([]Problem, error) {
	for {
		l := &load{copier: c, id: id}
		problems, err := l.all(ctx)
		if !errors.Is(err, journal.ErrConflict) {
			return problems, err
		}
		if _, differs := c.missingRecords(ctx, id); differs != nil {
			return nil, fmt.Errorf("target: another program writes to it: %w: %w", err, differs)
		}
		landed, failed := c.to.Journal.HighestSequenceNr(ctx, id)
		if failed != nil {
			return nil, fmt.Errorf("target: %w", failed)
		}
		if landed <= l.stored {
			return nil, fmt.Errorf("target: %w", err)
		}
		c.progress(Copying, c.sent.Add(landed-l.stored), c.total)
	}
}

// all copies an ID. It copies the snapshots before it deletes records, because a snapshot may be
// all that remains of an ID.
func (l *load) all(ctx context.Context) ([]Problem, error) {
	c, id := l.copier, l.id
	to, err := c.to.Journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	from, err := c.from.Journal.HighestSequenceNr(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	l.stored = to
	if err = l.records(ctx, from); err != nil {
		return nil, err
	}
	problems, err := c.copySnapshots(ctx, id, from)
	if err != nil {
		return nil, err
	}
	if to > 0 || l.holes {
		err = c.copyDeletion(ctx, id, from)
	}
	return problems, err
}

func (c *copier) copyDeletion(ctx context.Context, id string, highest uint64) error {
	first, err := inspect.FirstRecord(ctx, c.from.Journal, id, highest)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	deleted := highest
	if first > 0 {
		deleted = first - 1
	}
	if first, err = inspect.FirstRecord(ctx, c.to.Journal, id, deleted); first > 0 && err == nil {
		err = c.to.Journal.DeleteTo(ctx, id, deleted)
	}
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	return nil
}

// load collects the records of one ID for the next write to the target.
type load struct {
	*copier
	id     string
	stored uint64 // number of the last record in the target
	events []journal.Event
	size   int
	writer string // writer of the events
	holes  bool   // the target has placeholders
}

func (l *load) records(ctx context.Context, highest uint64) error {
	for e, err := range l.from.Journal.Replay(ctx, l.id, l.next(), highest) {
		if err == nil {
			err = l.fill(ctx, e.SequenceNr-1, &e)
		}
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if err := l.add(ctx, e); err != nil {
			return err
		}
	}
	if err := l.fill(ctx, highest, nil); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return l.flush(ctx)
}

func (l *load) next() uint64 { return l.stored + uint64(len(l.events)) + 1 }

// fill adds placeholders for deleted records up to a number. before is the next record, or nil.
func (l *load) fill(ctx context.Context, to uint64, before *journal.Event) error {
	next := l.next()
	if to < next {
		return nil
	}
	// Deletions start at record 1. Any other gap is damage.
	first, err := inspect.FirstRecord(ctx, l.from.Journal, l.id, next-1)
	switch {
	case err != nil:
		return err
	case first > 0 && before == nil:
		return &journal.GapError{ID: l.id, Want: next}
	case first > 0:
		return &journal.GapError{ID: l.id, Want: next, Got: before.SequenceNr}
	}
	placeholder := journal.Event{Writer: PlaceholderWriter, Time: time.Unix(0, 0).UTC()} // the time must not be after that of any record
	for placeholder.SequenceNr = next; placeholder.SequenceNr <= to; placeholder.SequenceNr++ {
		if err := l.add(ctx, placeholder); err != nil {
			return err
		}
	}
	l.holes = true
	return nil
}

// add adds the next record. All records of a write have the same writer.
func (l *load) add(ctx context.Context, e journal.Event) error {
	size := len(e.Payload) + len(e.Metadata)
	if len(l.events) >= writeRecords || l.size+size > writeBytes || e.Writer != l.writer {
		if err := l.flush(ctx); err != nil {
			return err
		}
	}
	l.events, l.size, l.writer = append(l.events, e), l.size+size, e.Writer
	return nil
}

func (l *load) flush(ctx context.Context) error {
	if len(l.events) == 0 {
		return nil
	}
	if err := l.append(ctx, journal.Write{ID: l.id, Writer: l.writer, Expect: l.stored, Events: l.events}); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	n := uint64(len(l.events))
	l.stored += n
	if l.writer != PlaceholderWriter {
		l.copied.Add(n)
	}
	l.events, l.size = l.events[:0], 0
	l.progress(Copying, l.sent.Add(n), l.total)
	return nil
}

// groupWrites is the number of writes in an append. Several appends run concurrently if the journal
// supports it.
const groupWrites = 64

type delivery chan error

// Written implements groupcommit.Owner.
func (d delivery) Written(_ *groupcommit.Request, err error) { d <- err }

// Room implements groupcommit.Owner. The queue is never full.
func (d delivery) Room() {}

// append stores a write. The caller may reuse the slices of the write after append returns.
func (c *copier) append(ctx context.Context, w journal.Write) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d := make(delivery, 1)
	c.writer.Submit(&groupcommit.Request{Write: w, Stream: new(groupcommit.Stream), Owner: d}) //nolint:contextcheck // append waits for every submitted write
	err := <-d
	if err == nil || errors.Is(err, journal.ErrConflict) {
		return err
	}
	return fmt.Errorf("events from %d on of %q: %w", w.Expect+1, w.ID, err)
}
