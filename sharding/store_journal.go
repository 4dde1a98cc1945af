// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/stored"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// journalCoordinator stores the state of a coordinator in a journal.
//
// Appends are conditional on the sequence number, so that two coordinators cannot continue one
// history differently. A change of an older coordinator is either stored before the claim of the
// newer one, or fails because its sequence number is taken.
type journalCoordinator struct {
	ledger *ledger

	mu         sync.Mutex
	loaded     bool
	head       head // last known end of the history
	term       uint64
	unresolved bool // a save after head has an unknown outcome
}

// OpenCoordinator implements CoordinatorStores.
func (c JournalStores) OpenCoordinator(s Scope) (CoordinatorStore, error) {
	open, err := c.ledgers(s)
	if err != nil {
		return nil, err
	}
	return &journalCoordinator{ledger: open("coordinator", "", stored.CoordinatorEvent, stored.CoordinatorState, coordinator.MaxBytes)}, nil
}

// Load implements CoordinatorStore.
func (j *journalCoordinator) Load(ctx context.Context) (Loaded, error) {
	j.mu.Lock()
	doubt, at := j.unresolved, j.head
	j.mu.Unlock()
	if doubt {
		if err := j.ledger.fence(ctx, at); err != nil {
			return Loaded{}, err
		}
	}
	var l Loaded
	h, err := j.ledger.read(ctx, func(b []byte) error {
		state, _, err := coordinator.Restore(b, nil, 0)
		l = Loaded{Term: state.Term(), State: b}
		return err
	}, func(b []byte) error {
		e, err := coordinator.DecodeEvent(b)
		l.Term = max(l.Term, e.Term)
		l.Events = append(l.Events, b)
		return err
	})
	if err != nil {
		return Loaded{}, err
	}
	l.Rev = h.rev
	j.setHead(h, l.Term)
	return l, nil
}

// setHead records the end of the history.
func (j *journalCoordinator) setHead(h head, term uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.loaded && h.rev < j.head.rev {
		return
	}
	if h.rev > j.head.rev {
		j.unresolved = false // the sequence number of the unresolved save is taken now
	}
	h.snapshot = max(h.snapshot, j.head.snapshot)
	j.loaded, j.head, j.term = true, h, term
}

// Save implements CoordinatorStore.
func (j *journalCoordinator) Save(ctx context.Context, c Change) error {
	if err := checkChange(&c); err != nil {
		return err
	}
	for _, b := range c.Events {
		if len(b) > coordinator.MaxBytes {
			return fmt.Errorf("%w: event of %d bytes, at most %d are allowed", ErrInvalid, len(b), coordinator.MaxBytes)
		}
	}
	h, err := j.checkPosition(&c)
	if err != nil {
		return err
	}
	if h.rev > c.Rev { // the change itself may already be stored
		return j.resolveConflict(ctx, &c)
	}
	after, err := j.ledger.append(ctx, h, c.Events)
	switch {
	case err == nil:
		state := func(context.Context) (head, []byte, error) { return after, c.After, nil } // runs concurrently
		j.setHead(j.ledger.snapshotLater(ctx, after, state), c.Term)
		return nil
	case errors.Is(err, journal.ErrConflict):
		return j.resolveConflict(ctx, &c)
	case !journal.NotStored(err):
		j.mu.Lock()
		j.unresolved = j.unresolved || j.head.rev == h.rev
		j.mu.Unlock()
	}
	return fmt.Errorf("sharding: append to %q after %d: %w", j.ledger.id, c.Rev, err)
}

// checkPosition returns the end of the history if the change may follow it.
func (j *journalCoordinator) checkPosition(c *Change) (head, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !j.loaded:
		return head{}, fmt.Errorf("%w: nothing was loaded", ErrConflict)
	case c.Rev > j.head.rev:
		return head{}, fmt.Errorf("%w: the change follows event %d, the history ends at %d", ErrConflict, c.Rev, j.head.rev)
	case c.Rev < j.head.rev:
	case c.Claim && c.Term <= j.term:
		return head{}, fmt.Errorf("%w: claim of term %d: term %d exists", ErrConflict, c.Term, j.term)
	case !c.Claim && c.Term < j.term:
		return head{}, fmt.Errorf("%w: term %d: term %d exists", ErrFenced, c.Term, j.term)
	case !c.Claim && c.Term > j.term:
		return head{}, fmt.Errorf("%w: term %d was not claimed", ErrConflict, c.Term)
	}
	return j.head, nil
}

// resolveConflict determines whether a change whose sequence number is taken was stored.
func (j *journalCoordinator) resolveConflict(ctx context.Context, c *Change) error {
	events := c.Events
	own, last := 0, head{rev: c.Rev}
	for e, err := range j.ledger.journal.Replay(ctx, j.ledger.id, c.Rev+1, journal.MaxSequenceNr) {
		if err != nil {
			return fmt.Errorf("sharding: read %q after %d: %w", j.ledger.id, c.Rev, err)
		}
		if own < len(events) && e.SequenceNr == last.rev+1 && e.Writer == j.ledger.writer && bytes.Equal(e.Payload, events[own]) {
			own++
			last = head{rev: e.SequenceNr, time: e.Time}
			continue
		}
		// A claim that lost is reported as ErrConflict, never as ErrFenced, so that the caller claims a higher term.
		if e.Manifest != stored.CoordinatorEvent || c.Claim && own < len(events) {
			continue
		}
		if other, err := coordinator.DecodeEvent(e.Payload); err == nil && other.Kind == coordinator.Started && other.Term > c.Term {
			return fmt.Errorf("%w: term %d: %v has begun term %d", ErrFenced, c.Term, other.Node, other.Term)
		}
	}
	if own < len(events) {
		return fmt.Errorf("%w: sequence number %d of %q is taken", ErrConflict, c.Rev+1, j.ledger.id)
	}
	j.setHead(last, c.Term)
	return nil
}

// Close implements CoordinatorStore.
func (j *journalCoordinator) Close() error {
	j.ledger.background.close()
	return nil
}

// JournalPrefix is the prefix of the persistence IDs of this package. Entity types must not use it.
const JournalPrefix = journal.ReservedPrefix + "sharding|"

// saveTimeout limits the background work on a snapshot, for which Close waits.
const saveTimeout = 20 * time.Second

// JournalStores are stores in a journal. They append events conditionally on the sequence number,
// and save snapshots.
type JournalStores struct {
	// Journal is the journal, the same for all nodes of the cluster. Required.
	Journal journal.Journal
	// Snapshots is the snapshot store, the same for all nodes. Defaults to none: all events are
	// kept and replayed. A store that is local to one node (see snapshot.Local) is refused, unless
	// the journal is local as well.
	Snapshots snapshot.Store
	// SnapshotEvery is the number of events between snapshots. Defaults to 1,000.
	SnapshotEvery int
	// KeepSnapshots is how many snapshots are kept in addition to the newest one. Older
	// snapshots, and the events that the oldest kept snapshot covers, are deleted. Defaults to
	// 2; a negative value means none.
	KeepSnapshots int
}

var (
	_ CoordinatorStores = JournalStores{}
	_ RememberStores    = JournalStores{}
)

func (c JournalStores) validate() error {
	var errs fielderror.Errors
	if c.Journal == nil {
		errs.Addf("JournalStores.Journal", "is required")
	}
	fielderror.NotNegative(&errs, "JournalStores.SnapshotEvery", c.SnapshotEvery)
	if hosting.NodeLocal(c.Journal, c.Snapshots) {
		errs.Addf("JournalStores.Snapshots", "is local to this node, and the journal is not: other nodes would lose the deleted events")
	}
	return errs.Err(ErrInvalid)
}

// ledgers returns a function that opens the histories of a store, which share circuit breakers.
func (c JournalStores) ledgers(s Scope) (func(kind, number, event, state string, most int) *ledger, error) {
	if err := errors.Join(c.validate(), s.validate()); err != nil {
		return nil, err
	}
	logger := s.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	guarded, err := journal.WithBreaker(c.Journal, journal.BreakerConfig{})
	if err != nil {
		return nil, fmt.Errorf("sharding: guard the journal: %w", err)
	}
	var snapshots snapshot.Store
	if c.Snapshots != nil {
		if snapshots, err = snapshot.WithBreaker(c.Snapshots, snapshot.BreakerConfig{}); err != nil {
			return nil, fmt.Errorf("sharding: guard the snapshots: %w", err)
		}
	}
	writer, background := rand.Text(), &backgroundTask{}
	return func(kind, number, event, state string, most int) *ledger {
		id := JournalPrefix + kind + "|" + s.Type
		if number != "" {
			id += "|" + number
		}
		if s.Role != "" {
			id += "|" + s.Role
		}
		return &ledger{
			journal: guarded, snapshots: snapshots, background: background, id: id, writer: writer, event: event, state: state, log: logger,
			keep: max(cmp.Or(c.KeepSnapshots, 2), 0), every: uint64(cmp.Or(c.SnapshotEvery, 1000)), most: most, //nolint:gosec // checked
		}
	}, nil
}

// backgroundTask runs one function at a time in the background.
type backgroundTask struct {
	mu           sync.Mutex
	closed, busy bool
	running      sync.WaitGroup
}

// start runs f and returns true, unless another function runs or the store is closed.
func (b *backgroundTask) start(ctx context.Context, f func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.busy {
		return false
	}
	b.busy = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	b.running.Go(func() {
		defer cancel()
		f(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy = false
	})
	return true
}

// close waits for the running function and rejects further functions.
func (b *backgroundTask) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}

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
	time     time.Time // time of the last event
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
	// Read the number after the snapshot is loaded, so that it is at least that of the snapshot.
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
		case e.Manifest == stored.Removed: // an earlier record may still exist
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
	for n := 0; l.snapshots != nil && n < maxSnapshotAttempts; n++ {
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
// counts as success, because another record occupies the number.
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

// snapshotLater saves a snapshot in the background if enough events follow the last one and no
// other snapshot of the store is being saved. It returns h with the number of the last snapshot. A
// failure is logged, and the events are kept.
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
	// The oldest kept snapshot covers the deleted events, and so does the new one.
	back, err := l.snapshots.Load(ctx, l.id, snapshot.At(h.rev))
	if err == nil && (back.Manifest != l.state || !bytes.Equal(back.Payload, state)) {
		err = snapshot.ErrCorrupt
	}
	if err != nil {
		return fmt.Errorf("read back the snapshot at %d: %w", h.rev, err)
	}
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
