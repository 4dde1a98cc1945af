// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/journal"
)

// What the records of a coordinator are. They never change; the encodings have versions of their
// own.
const (
	coordinatorEvent = "refold.coordinator.event"
	coordinatorState = "refold.coordinator.state"
)

// journalCoordinator keeps the state of a coordinator in a journal.
//
// An append is conditional, so that no two coordinators ever continue one history in two ways. What an older one
// stores, it stores before the newer one has stored its term; or it expects a number that is taken.
type journalCoordinator struct {
	ledger *ledger
	every  uint64
	behind background

	mu     sync.Mutex
	loaded bool
	head   head // as far as this store knows
	term   uint64
	doubt  bool // a save behind head may be stored or not, or come later
}

// OpenCoordinator implements CoordinatorStores.
func (c JournalConfig) OpenCoordinator(s Scope) (CoordinatorStore, error) {
	open, c, err := c.ledgers(s)
	if err != nil {
		return nil, err
	}
	return &journalCoordinator{
		ledger: open("coordinator", "", coordinatorEvent, coordinatorState),
		every:  uint64(c.SnapshotEvery), //nolint:gosec // it was checked
	}, nil
}

// Load implements CoordinatorStore. What no coordinator can have decided, it understands as coordinator.Fold does.
func (j *journalCoordinator) Load(ctx context.Context) (Loaded, error) {
	j.mu.Lock()
	doubt, at := j.doubt, j.head
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
	j.know(h, l.State.Term())
	return l, nil
}

// know notes where the history ends.
func (j *journalCoordinator) know(h head, term uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.loaded && h.rev < j.head.rev {
		return
	}
	if h.rev > j.head.rev {
		j.doubt = false // whatever it was about, the number is taken
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
	h, err := j.expect(&c)
	if err != nil {
		return err
	}
	if h.rev > c.Rev { // it may be this change that is there
		return j.compare(ctx, &c, events)
	}
	after, err := j.ledger.append(ctx, h, events)
	switch {
	case err == nil:
		j.know(after, c.Term)
		j.snapshot(ctx, after, c.After)
		return nil
	case errors.Is(err, journal.ErrConflict):
		return j.compare(ctx, &c, events)
	case !journal.NotStored(err):
		j.mu.Lock()
		j.doubt = j.doubt || j.head.rev == h.rev
		j.mu.Unlock()
	}
	return fmt.Errorf("sharding: append to %q behind %d: %w", j.ledger.id, c.Rev, err)
}

// expect returns where the history ends, if the change may stand behind that.
func (j *journalCoordinator) expect(c *Change) (head, error) {
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
func (j *journalCoordinator) compare(ctx context.Context, c *Change, events [][]byte) error {
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
	j.know(last, c.Term)
	return nil
}

// snapshot saves the state now and then.
func (j *journalCoordinator) snapshot(ctx context.Context, h head, after coordinator.State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ledger.snapshots == nil || h.rev < j.head.snapshot+j.every {
		return
	}
	if j.behind.do(ctx, func(ctx context.Context) {
		b := coordinator.AppendState(nil, after)
		err := fmt.Errorf("%w: a state of %d bytes, at most %d are allowed", ErrInvalid, len(b), coordinator.MaxBytes)
		if len(b) <= coordinator.MaxBytes {
			err = j.ledger.save(ctx, h, b)
		}
		if err != nil {
			j.ledger.failed(ctx, err)
		}
	}) {
		j.head.snapshot = h.rev
	}
}

// Close implements CoordinatorStore.
func (j *journalCoordinator) Close() error {
	j.behind.close()
	return nil
}
