// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// maxSnapshotAttempts is how many snapshots are tried before all events are replayed.
const maxSnapshotAttempts = 3

// maxReads is how often a history with a gap is read again: another node may save a snapshot and
// delete events at the same time.
const maxReads = 5

// ledger is the history of one persistence ID: events in a journal, and snapshots. It is stateless;
// the caller of append keeps the end of the history.
type ledger struct {
	journal    journal.Journal
	snapshots  snapshot.Store // optional
	background *backgroundTask
	id         string
	writer     string
	event      string // manifests of events and of snapshots
	state      string
	log        *slog.Logger
	keep       int    // snapshots in addition to the newest one
	every      uint64 // events between two snapshots
	most       int    // bytes in a snapshot
}

// head is the end of a history.
type head struct {
	rev      uint64
	time     time.Time // of the last event
	snapshot uint64    // sequence number of the newest snapshot
}

// read replays the history. It calls start with the newest snapshot that can be decoded, or with
// nil for the empty state, then apply for each later event.
func (l *ledger) read(ctx context.Context, start func(state []byte) error, apply func(event []byte) error) (head, error) {
	var h head
	var err error
	for range maxReads {
		if h, err = l.readOnce(ctx, start, apply); !errors.Is(err, journal.ErrHistoryGap) {
			break
		}
	}
	if err != nil {
		return head{}, fmt.Errorf("sharding: read %q: %w", l.id, err)
	}
	return h, nil
}

func (l *ledger) readOnce(ctx context.Context, start func(state []byte) error, apply func(event []byte) error) (head, error) {
	h, err := l.load(ctx, start)
	if err != nil {
		return head{}, err
	}
	// Read after the snapshot, so that the events before the snapshot are included.
	highest, err := l.journal.HighestSequenceNr(ctx, l.id)
	switch {
	case err != nil:
		return head{}, fmt.Errorf("read the highest sequence number: %w", err)
	case h.rev > highest:
		return head{}, fmt.Errorf("snapshot at %d, after the end of the journal: %w", h.rev, &journal.GapError{ID: l.id, Want: highest + 1})
	}
	for e, err := range l.journal.Replay(ctx, l.id, h.rev+1, journal.MaxSequenceNr) {
		switch {
		case err != nil:
			return head{}, err
		case e.Manifest == removedEvent: // earlier records may be deleted or not
			if err = start(nil); err != nil {
				return head{}, err
			}
			h.rev, h.time = e.SequenceNr, e.Time
			continue
		case e.SequenceNr != h.rev+1:
			return head{}, &journal.GapError{ID: l.id, Want: h.rev + 1, Got: e.SequenceNr}
		}
		h.rev, h.time = e.SequenceNr, e.Time
		if e.IsFence() {
			continue
		}
		if e.Manifest != l.event {
			return head{}, fmt.Errorf("event %d: unknown manifest %q", e.SequenceNr, e.Manifest)
		}
		if err = apply(e.Payload); err != nil {
			return head{}, fmt.Errorf("event %d: %w", e.SequenceNr, err)
		}
	}
	if h.rev < highest {
		return head{}, &journal.GapError{ID: l.id, Want: h.rev + 1}
	}
	return h, nil
}

// load calls start with the newest snapshot that can be decoded.
func (l *ledger) load(ctx context.Context, start func(state []byte) error) (head, error) {
	criteria := snapshot.Latest()
	for range maxSnapshotAttempts {
		if l.snapshots == nil {
			break
		}
		s, err := l.snapshots.Load(ctx, l.id, criteria)
		if errors.Is(err, snapshot.ErrNotFound) {
			break
		}
		if errors.Is(err, snapshot.ErrCorrupt) {
			l.log.WarnContext(ctx, "snapshot unreadable, replaying more", slog.String("persistence_id", l.id), slog.Any("error", err))
			break
		}
		if err != nil {
			return head{}, fmt.Errorf("load the snapshot: %w", err)
		}
		if s.Manifest != l.state {
			err = fmt.Errorf("unknown manifest %q", s.Manifest)
		} else {
			err = start(s.Payload)
		}
		if err == nil {
			return head{rev: s.SequenceNr, time: s.Time, snapshot: s.SequenceNr}, nil
		}
		l.log.WarnContext(ctx, "snapshot does not decode, trying an older one", slog.String("persistence_id", l.id),
			slog.Uint64("sequence_nr", s.SequenceNr), slog.Any("error", err))
		if s.SequenceNr <= 1 {
			break
		}
		criteria.MaxSequenceNr = s.SequenceNr - 1
	}
	return head{}, start(nil)
}

// append stores events after h atomically and returns the new end of the history. The error is that
// of the journal: see journal.NotStored.
func (l *ledger) append(ctx context.Context, h head, events [][]byte) (head, error) {
	records := make([]journal.Event, 0, len(events))
	now := h.next()
	for i, e := range events {
		records = append(records, journal.Event{SequenceNr: h.rev + 1 + uint64(i), Time: now, Manifest: l.event, Payload: e})
	}
	return l.write(ctx, h, records)
}

// fence occupies the next sequence number, so that pending appends at that number fail. A conflict
// is a success: another record occupies it.
func (l *ledger) fence(ctx context.Context, h head) error {
	_, err := l.write(ctx, h, []journal.Event{{SequenceNr: h.rev + 1, Time: h.next()}})
	if err != nil && !errors.Is(err, journal.ErrConflict) {
		return fmt.Errorf("sharding: fence %q after %d: %w", l.id, h.rev, err)
	}
	return nil
}

func (l *ledger) write(ctx context.Context, h head, records []journal.Event) (head, error) {
	writes := []journal.Write{{ID: l.id, Writer: l.writer, Expect: h.rev, Events: records}}
	if errs := l.journal.Append(ctx, writes); errs != nil && errs[0] != nil {
		return h, errs[0]
	}
	last := records[len(records)-1]
	h.rev, h.time = last.SequenceNr, last.Time
	return h, nil
}

// next returns the time of an event after the head.
func (h head) next() time.Time {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if now.Before(h.time) {
		return h.time
	}
	return now
}

// snapshotLater saves a snapshot in the background if enough events follow the last one and no other
// snapshot of the store is being saved. It returns h with the number of the last snapshot. A failure
// is logged; the events are kept then.
func (l *ledger) snapshotLater(ctx context.Context, h head, state func(ctx context.Context) (head, []byte, error)) head {
	if l.snapshots == nil || h.rev < h.snapshot+l.every {
		return h
	}
	if l.background.start(ctx, func(ctx context.Context) {
		at, b, err := state(ctx)
		if err == nil && len(b) > l.most {
			err = fmt.Errorf("%w: state of %d bytes, at most %d are allowed", ErrInvalid, len(b), l.most)
		}
		if err == nil {
			err = l.save(ctx, at, b)
		}
		if err != nil {
			l.log.WarnContext(ctx, "cannot save a snapshot, keeping the events", slog.String("persistence_id", l.id), slog.Any("error", err))
		}
	}) {
		h.snapshot = h.rev
	}
	return h
}

// save stores a snapshot of the state at h. It deletes the events and snapshots that the kept
// snapshots replace.
func (l *ledger) save(ctx context.Context, h head, state []byte) error {
	s := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: l.id, SequenceNr: h.rev, Time: h.time}, Manifest: l.state, Payload: state}
	if err := l.snapshots.Save(ctx, s); err != nil {
		return fmt.Errorf("save the snapshot at %d: %w", h.rev, err)
	}
	var stored []uint64
	for m, err := range l.snapshots.List(ctx, l.id, snapshot.UpTo(h.rev)) {
		if err != nil {
			return fmt.Errorf("list the snapshots: %w", err)
		}
		if stored = append(stored, m.SequenceNr); len(stored) > l.keep {
			break
		}
	}
	if len(stored) <= l.keep {
		return nil
	}
	// The oldest kept snapshot covers the deleted events.
	oldest := stored[l.keep]
	if err := l.journal.DeleteTo(ctx, l.id, oldest); err != nil {
		return fmt.Errorf("delete the events up to %d: %w", oldest, err)
	}
	if oldest > 1 {
		if err := l.snapshots.Delete(ctx, l.id, snapshot.UpTo(oldest-1)); err != nil {
			return fmt.Errorf("delete the snapshots below %d: %w", oldest, err)
		}
	}
	return nil
}
