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
	"sync"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Manifests of the records of a coordinator. They never change; the encodings have their own
// versions.
const (
	coordinatorEvent = "refold.coordinator.event"
	coordinatorState = "refold.coordinator.state"
)

// journalCoordinator stores the state of a coordinator in a journal.
//
// Appends are conditional on the sequence number, so that no two coordinators continue one history
// differently. A change of an older coordinator is stored before the claim of the newer one, or its
// sequence number is taken.
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
	return &journalCoordinator{ledger: open("coordinator", "", coordinatorEvent, coordinatorState, coordinator.MaxBytes)}, nil
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
		j.unresolved = false // its sequence number is taken now
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
		// A claim that lost must be made again with a higher term.
		if e.Manifest != coordinatorEvent || c.Claim && own < len(events) {
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
const JournalPrefix = "refold.sharding|"

// saveTimeout limits the background work on a snapshot, for which Close waits.
const saveTimeout = 20 * time.Second

// JournalStores are stores in a journal. They append events conditionally on the sequence number, and
// save snapshots.
type JournalStores struct {
	// Journal is the journal, the same for all nodes of the cluster. Required.
	Journal journal.Journal
	// Snapshots is the snapshot store, the same for all nodes. Defaults to none: all events are
	// kept and replayed.
	Snapshots snapshot.Store
	// SnapshotEvery is the number of events between snapshots. Defaults to 1,000.
	SnapshotEvery int
	// KeepSnapshots is how many snapshots are kept in addition to the newest one. Events and
	// snapshots up to the oldest kept one are deleted. Defaults to 2; a negative value means none.
	KeepSnapshots int
}

var (
	_ CoordinatorStores = JournalStores{}
	_ RememberStores    = JournalStores{}
)

func (c JournalStores) withDefaults() JournalStores {
	c.SnapshotEvery = cmp.Or(c.SnapshotEvery, 1000)
	c.KeepSnapshots = max(cmp.Or(c.KeepSnapshots, 2), 0)
	return c
}

func (c JournalStores) validate() error {
	var errs []error
	if c.Journal == nil {
		errs = append(errs, fmt.Errorf("%w: JournalStores.Journal is required", ErrInvalid))
	}
	if c.SnapshotEvery < 0 {
		errs = append(errs, fmt.Errorf("%w: JournalStores.SnapshotEvery is %d, it must not be negative", ErrInvalid, c.SnapshotEvery))
	}
	return errors.Join(errs...)
}

// ledgers returns a function that opens the histories of one store. They share circuit breakers and
// a background task.
func (c JournalStores) ledgers(s Scope) (func(kind, number, event, state string, most int) *ledger, error) {
	if err := errors.Join(c.validate(), s.validate()); err != nil {
		return nil, err
	}
	c, s = c.withDefaults(), s.withDefaults()
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
			journal: guarded, snapshots: snapshots, background: background, id: id, writer: writer, event: event, state: state, log: s.Logger,
			keep: c.KeepSnapshots, every: uint64(c.SnapshotEvery), most: most, //nolint:gosec // checked
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

// close waits for the running function and rejects further ones.
func (b *backgroundTask) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}
