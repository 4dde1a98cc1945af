// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// SnapshotStore is an in-memory snapshot store. The zero value is empty and ready; it must not be
// copied. It implements snapshot.Store.
//
// It has no limits beyond those of the SPI. It keeps and returns payloads without copying them.
type SnapshotStore struct {
	mu     sync.Mutex
	byID   map[string][]snapshot.Snapshot // the highest sequence number first, never modified in place
	closed bool
}

var _ snapshot.Store = (*SnapshotStore)(nil)

// NewSnapshotStore returns an empty store, like new(SnapshotStore).
func NewSnapshotStore() *SnapshotStore { return new(SnapshotStore) }

// Save implements snapshot.Store.
func (s *SnapshotStore) Save(ctx context.Context, snap snapshot.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("inmem: save snapshot of %q at %d: %w", snap.ID, snap.SequenceNr, err)
	}
	if snap.SequenceNr == 0 {
		return fmt.Errorf("inmem: save snapshot of %q: %w: sequence number is 0", snap.ID, snapshot.ErrInvalid)
	}
	snap.Time = snap.Time.UTC().Truncate(time.Microsecond)
	held := s.byID[snap.ID]
	at, found := slices.BinarySearchFunc(held, snap.SequenceNr, func(held snapshot.Snapshot, seqNr uint64) int {
		return cmp.Compare(seqNr, held.SequenceNr)
	})
	rest := held[at:]
	if found {
		rest = held[at+1:]
	}
	if s.byID == nil {
		s.byID = make(map[string][]snapshot.Snapshot)
	}
	s.byID[snap.ID] = slices.Concat(held[:at], []snapshot.Snapshot{snap}, rest)
	return nil
}

// Load implements snapshot.Store.
func (s *SnapshotStore) Load(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	held, err := s.held(ctx, id)
	if err == nil {
		for _, snap := range held {
			if c.Matches(snap.Metadata) {
				return snap, nil
			}
		}
		err = snapshot.ErrNotFound
	}
	return snapshot.Snapshot{}, fmt.Errorf("inmem: load snapshot of %q: %w", id, err)
}

// List implements snapshot.Store. It yields the snapshots stored at the start of the loop.
func (s *SnapshotStore) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return func(yield func(snapshot.Metadata, error) bool) {
		held, err := s.held(ctx, id)
		for _, snap := range held {
			if err = context.Cause(ctx); err != nil {
				break
			}
			if c.Matches(snap.Metadata) && !yield(snap.Metadata, nil) {
				return
			}
		}
		if err != nil {
			yield(snapshot.Metadata{}, fmt.Errorf("inmem: list snapshots of %q: %w", id, err))
		}
	}
}

// Delete implements snapshot.Store. It deletes all matches atomically.
func (s *SnapshotStore) Delete(ctx context.Context, id string, c snapshot.Criteria) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.usable(ctx)
	if err == nil {
		err = c.CheckDelete()
	}
	if err != nil {
		return fmt.Errorf("inmem: delete snapshots of %q: %w", id, err)
	}
	kept := slices.DeleteFunc(slices.Clone(s.byID[id]), func(snap snapshot.Snapshot) bool {
		return c.Matches(snap.Metadata)
	})
	if len(kept) == 0 {
		delete(s.byID, id)
	} else {
		s.byID[id] = kept
	}
	return nil
}

// Close implements snapshot.Store. It drops the contents and never fails.
func (s *SnapshotStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.byID = true, nil
	return nil
}

func (s *SnapshotStore) held(ctx context.Context, id string) ([]snapshot.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.byID[id], nil
}

func (s *SnapshotStore) usable(ctx context.Context) error {
	if s.closed {
		return snapshot.ErrClosed
	}
	return context.Cause(ctx)
}

// Open returns an empty in-memory database: a journal and a snapshot store. It never fails; its
// error result matches the Open functions of other plugins.
func Open() (store.DB, error) { return store.Of(NewJournal(), NewSnapshotStore()), nil }
