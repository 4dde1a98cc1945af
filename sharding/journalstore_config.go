// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

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
	guarded, err := journal.Guard(c.Journal, journal.GuardConfig{})
	if err != nil {
		return nil, c, fmt.Errorf("sharding: guard the journal: %w", err)
	}
	var snapshots snapshot.Store
	if c.Snapshots != nil {
		if snapshots, err = snapshot.Guard(c.Snapshots, snapshot.GuardConfig{}); err != nil {
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
type background struct {
	mu           sync.Mutex
	closed, busy bool
	running      sync.WaitGroup
}

// do runs f and returns true, unless something runs already or the store is closed.
func (b *background) do(ctx context.Context, f func(ctx context.Context)) bool {
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
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}

// failed logs what went wrong where nobody waits.
func (l *ledger) failed(ctx context.Context, err error) {
	l.log.WarnContext(ctx, "saving a snapshot failed, events are kept", slog.String("persistence_id", l.id), slog.Any("error", err))
}
