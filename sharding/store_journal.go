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

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Kind the records of a coordinator are. They never change; the encodings have versions of their
// own.
const (
	coordinatorEvent = "refold.coordinator.event"
	coordinatorState = "refold.coordinator.state"
)

// journalCoordinator keeps the state of a coordinator in a journal.
//
// An append is conditional, so that no two coordinators ever continue one history in two ways. Kind an older one
// stores, it stores before the newer one has stored its term; or it expects a number that is taken.
type journalCoordinator struct {
	ledger        *ledger
	snapshotEvery uint64
	background    backgroundTask

	mu         sync.Mutex
	loaded     bool
	head       head // as far as this store knows
	term       uint64
	unresolved bool // a save behind head may be stored or not, or come later
}

// OpenCoordinator implements CoordinatorStores.
func (c JournalConfig) OpenCoordinator(s Scope) (CoordinatorStore, error) {
	open, c, err := c.ledgers(s)
	if err != nil {
		return nil, err
	}
	return &journalCoordinator{
		ledger:        open("coordinator", "", coordinatorEvent, coordinatorState),
		snapshotEvery: uint64(c.SnapshotEvery), //nolint:gosec // it was checked
	}, nil
}

// Load implements CoordinatorStore. Kind no coordinator can have decided, it understands as coordinator.Fold does.
func (j *journalCoordinator) Load(ctx context.Context) (Loaded, error) {
	j.mu.Lock()
	doubt, at := j.unresolved, j.head
	j.mu.Unlock()
	if doubt {
		if err := j.ledger.fence(ctx, at); err != nil {
			return Loaded{}, err
		}
	}
	var fold *coordinator.Fold
	h, err := j.ledger.read(ctx, func(b []byte) error {
		var state coordinator.State
		if b != nil {
			var err error
			if state, err = coordinator.DecodeState(b); err != nil {
				return err
			}
		}
		fold = coordinator.NewFold(state)
		return nil
	}, func(b []byte) error {
		e, err := coordinator.DecodeEvent(b)
		if err == nil {
			fold.Replay(e)
		}
		return err
	})
	if err != nil {
		return Loaded{}, err
	}
	l := Loaded{State: fold.State(), Rev: h.rev}
	l.Repairs, l.Repaired = fold.Repairs()
	j.setHead(h, l.State.Term())
	return l, nil
}

// know notes where the history ends.
func (j *journalCoordinator) setHead(h head, term uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.loaded && h.rev < j.head.rev {
		return
	}
	if h.rev > j.head.rev {
		j.unresolved = false // whatever it was about, the number is taken
	}
	h.snapshot = max(h.snapshot, j.head.snapshot)
	j.loaded, j.head, j.term = true, h, term
}

// Save implements CoordinatorStore.
func (j *journalCoordinator) Save(ctx context.Context, c Change) error {
	if err := checkChange(&c); err != nil {
		return err
	}
	events := make([][]byte, 0, len(c.Events))
	for _, e := range c.Events {
		b := coordinator.AppendEvent(nil, e)
		if len(b) > coordinator.MaxBytes {
			return fmt.Errorf("%w: an event of %d bytes, at most %d are allowed", ErrInvalid, len(b), coordinator.MaxBytes)
		}
		events = append(events, b)
	}
	h, err := j.checkPosition(&c)
	if err != nil {
		return err
	}
	if h.rev > c.Rev { // it may be this change that is there
		return j.resolveConflict(ctx, &c, events)
	}
	after, err := j.ledger.append(ctx, h, events)
	switch {
	case err == nil:
		j.setHead(after, c.Term)
		j.snapshot(ctx, after, c.After)
		return nil
	case errors.Is(err, journal.ErrConflict):
		return j.resolveConflict(ctx, &c, events)
	case !journal.NotStored(err):
		j.mu.Lock()
		j.unresolved = j.unresolved || j.head.rev == h.rev
		j.mu.Unlock()
	}
	return fmt.Errorf("sharding: append to %q behind %d: %w", j.ledger.id, c.Rev, err)
}

// expect returns where the history ends, if the change may stand behind that.
func (j *journalCoordinator) checkPosition(c *Change) (head, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !j.loaded:
		return head{}, fmt.Errorf("%w: nothing was loaded", ErrConflict)
	case c.Rev > j.head.rev:
		return head{}, fmt.Errorf("%w: the change stands behind %d, the history ends at %d", ErrConflict, c.Rev, j.head.rev)
	case c.Rev < j.head.rev:
	case claims(c) && c.Term <= j.term:
		return head{}, fmt.Errorf("%w: term %d is claimed, and there is term %d", ErrConflict, c.Term, j.term)
	case !claims(c) && c.Term < j.term:
		return head{}, fmt.Errorf("%w: term %d, and there is term %d", ErrFenced, c.Term, j.term)
	case !claims(c) && c.Term > j.term:
		return head{}, fmt.Errorf("%w: term %d was never claimed", ErrConflict, c.Term)
	}
	return j.head, nil
}

// compare says what became of a change whose number is taken.
func (j *journalCoordinator) resolveConflict(ctx context.Context, c *Change, events [][]byte) error {
	own, last := 0, head{rev: c.Rev}
	for e, err := range j.ledger.journal.Replay(ctx, j.ledger.id, c.Rev+1, journal.MaxSequenceNr) {
		if err != nil {
			return fmt.Errorf("sharding: read %q behind %d: %w", j.ledger.id, c.Rev, err)
		}
		if own < len(events) && e.SequenceNr == last.rev+1 && e.Writer == j.ledger.writer && bytes.Equal(e.Payload, events[own]) {
			own++
			last = head{rev: e.SequenceNr, time: e.Time}
			continue
		}
		// A claim that came too late has only to be made again.
		if e.Manifest != coordinatorEvent || claims(c) && own < len(events) {
			continue
		}
		if other, err := coordinator.DecodeEvent(e.Payload); err == nil && other.Kind == coordinator.Started && other.Term > c.Term {
			return fmt.Errorf("%w: term %d, and %v has begun term %d", ErrFenced, c.Term, other.Node, other.Term)
		}
	}
	if own < len(events) {
		return fmt.Errorf("%w: number %d of %q is taken", ErrConflict, c.Rev+1, j.ledger.id)
	}
	j.setHead(last, c.Term)
	return nil
}

// snapshot saves the state now and then.
func (j *journalCoordinator) snapshot(ctx context.Context, h head, after coordinator.State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ledger.snapshots == nil || h.rev < j.head.snapshot+j.snapshotEvery {
		return
	}
	if j.background.start(ctx, func(ctx context.Context) {
		b := coordinator.AppendState(nil, after)
		err := fmt.Errorf("%w: a state of %d bytes, at most %d are allowed", ErrInvalid, len(b), coordinator.MaxBytes)
		if len(b) <= coordinator.MaxBytes {
			err = j.ledger.save(ctx, h, b)
		}
		if err != nil {
			j.ledger.logSnapshotFailure(ctx, err)
		}
	}) {
		j.head.snapshot = h.rev
	}
}

// Close implements CoordinatorStore.
func (j *journalCoordinator) Close() error {
	j.background.close()
	return nil
}

// JournalPrefix begins the persistence IDs of all that this package keeps in a journal. Entities can't
// have it.
const JournalPrefix = "refold.sharding|"

// saveTimeout bounds what is done for a snapshot in the background, for which Close waits.
const saveTimeout = 20 * time.Second

// JournalConfig says how stores keep what they are given in a journal: by events, each appended where the
// number of the last one is as expected, and by snapshots.
type JournalConfig struct {
	// Journal is the journal, the same one for all nodes of the cluster. Required.
	Journal journal.Journal
	// Snapshots are where snapshots are kept, the same place for all nodes. Defaults to none: then all events are kept and
	// replayed.
	Snapshots snapshot.Store
	// SnapshotEvery is after how many events a snapshot is saved. Defaults to 1,000.
	SnapshotEvery int
	// KeepSnapshots is how many snapshots are kept behind the newest one; what the oldest of them covers is
	// deleted. Defaults to 2, below 0 is none.
	KeepSnapshots int
}

// JournalState returns stores that keep the state of coordinators in a journal. Snapshots may be
// nil. JournalConfig has more to set.
func JournalState(j journal.Journal, snapshots snapshot.Store) JournalConfig {
	return JournalConfig{Journal: j, Snapshots: snapshots}
}

// JournalEntities returns stores that keep in a journal which entities run. Snapshots may be nil.
// JournalConfig has more to set.
func JournalEntities(j journal.Journal, snapshots snapshot.Store) JournalConfig {
	return JournalConfig{Journal: j, Snapshots: snapshots}
}

var (
	_ CoordinatorStores = JournalConfig{}
	_ RememberStores    = JournalConfig{}
)

func (c JournalConfig) withDefaults() JournalConfig {
	c.SnapshotEvery = cmp.Or(c.SnapshotEvery, 1000)
	c.KeepSnapshots = max(cmp.Or(c.KeepSnapshots, 2), 0)
	return c
}

func (c JournalConfig) validate() error {
	var errs []error
	if c.Journal == nil {
		errs = append(errs, fmt.Errorf("%w: JournalConfig.Journal: it is required", ErrInvalid))
	}
	if c.SnapshotEvery < 0 {
		errs = append(errs, fmt.Errorf("%w: JournalConfig.SnapshotEvery: %d is below 0", ErrInvalid, c.SnapshotEvery))
	}
	return errors.Join(errs...)
}

// ledgers opens the histories of one store. They share a circuit breaker, which nothing else uses.
func (c JournalConfig) ledgers(s Scope) (func(kind, number, event, state string) *ledger, JournalConfig, error) {
	if err := errors.Join(c.validate(), s.validate()); err != nil {
		return nil, c, err
	}
	c, s = c.withDefaults(), s.withDefaults()
	guarded, err := journal.WithBreaker(c.Journal, journal.BreakerConfig{})
	if err != nil {
		return nil, c, fmt.Errorf("sharding: guard the journal: %w", err)
	}
	var snapshots snapshot.Store
	if c.Snapshots != nil {
		if snapshots, err = snapshot.WithBreaker(c.Snapshots, snapshot.BreakerConfig{}); err != nil {
			return nil, c, fmt.Errorf("sharding: guard the snapshots: %w", err)
		}
	}
	writer := rand.Text()
	return func(kind, number, event, state string) *ledger {
		id := JournalPrefix + kind + "|" + s.Type
		if number != "" {
			id += "|" + number
		}
		if s.Role != "" {
			id += "|" + s.Role
		}
		return &ledger{journal: guarded, snapshots: snapshots, id: id, writer: writer, keep: c.KeepSnapshots, event: event, state: state, log: s.Logger}
	}, c, nil
}

// background does what nobody waits for, one thing at a time.
type backgroundTask struct {
	mu           sync.Mutex
	closed, busy bool
	running      sync.WaitGroup
}

// do runs f and returns true, unless something runs already or the store is closed.
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

// close waits for what goes on.
func (b *backgroundTask) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}

// failed logs what went wrong where nobody waits.
func (l *ledger) logSnapshotFailure(ctx context.Context, err error) {
	l.log.WarnContext(ctx, "saving a snapshot failed, events are kept", slog.String("persistence_id", l.id), slog.Any("error", err))
}
