// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"errors"
	"fmt"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// SnapshotStore is the snapshot store of a DB. It implements snapshot.Store.
// Saves that come at the same time, or together with an append, share a sync.
type SnapshotStore struct {
	handle

	db *DB
}

var _ snapshot.Store = (*SnapshotStore)(nil)

// Close implements snapshot.Store. See DB.Journal.
func (s *SnapshotStore) Close() error { return s.db.drop(&s.handle) }

// Save implements snapshot.Store. It fails with snapshot.ErrTooLarge above
// Config.MaxSnapshotSize, and with snapshot.ErrInvalid for a sequence number or
// a time that the format can't hold and for a manifest of more than 4,096
// bytes.
func (s *SnapshotStore) Save(ctx context.Context, snap snapshot.Snapshot) error {
	err := checkSnapshot(&snap, s.db.cfg.MaxSnapshotSize)
	if err == nil {
		err = s.save(ctx, &snap)
	}
	if err != nil {
		return fmt.Errorf("leveldb: save the snapshot of %q at %d: %w", snap.ID, snap.SequenceNr, err)
	}
	return nil
}

func (s *SnapshotStore) save(ctx context.Context, snap *snapshot.Snapshot) error {
	e, err := s.use(ctx, snap.ID, true)
	if err != nil {
		return err
	}
	defer s.release()
	key := snapshotKey(tagSnapshot, snap.ID, snap.SequenceNr)
	old, err := e.get(key)
	if err != nil {
		return snapshotError(err)
	}
	if _, err := decodeHead(key, old); errors.Is(err, snapshot.ErrNewerVersion) {
		return err // and not to be replaced; anything else may be
	}
	var batch leveldb.Batch
	batch.Put(key, headOf(snap).append(nil, key))
	batch.Put(snapshotKey(tagPayload, snap.ID, snap.SequenceNr), snap.Payload)
	return snapshotError(e.write(&batch))
}

// Delete implements snapshot.Store. A damaged snapshot is deleted if its number
// matches, whatever its time was.
func (s *SnapshotStore) Delete(ctx context.Context, id string, c snapshot.Criteria) error {
	if err := s.delete(ctx, id, c); err != nil {
		return fmt.Errorf("leveldb: delete snapshots of %q: %w", id, err)
	}
	return nil
}

func (s *SnapshotStore) delete(ctx context.Context, id string, c snapshot.Criteria) error {
	e, err := s.use(ctx, id, true)
	if err != nil {
		return err
	}
	defer s.release()
	var batch leveldb.Batch
	for f, err := range heads(e.db, id, c) {
		if err != nil {
			return err
		}
		if errors.Is(f.err, snapshot.ErrNewerVersion) {
			return f.err
		}
		if f.matches(c) {
			batch.Delete(snapshotKey(tagSnapshot, id, f.SequenceNr))
			batch.Delete(snapshotKey(tagPayload, id, f.SequenceNr))
		}
	}
	if batch.Len() == 0 {
		return nil
	}
	return snapshotError(e.write(&batch))
}

// use returns the engine for one call about an ID. release must be called.
func (s *SnapshotStore) use(ctx context.Context, id string, writing bool) (*engine, error) {
	if err := checkSnapshotID(id); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !s.enter() {
		return nil, snapshot.ErrClosed
	}
	e, err := s.db.acquire(writing)
	if err != nil {
		s.leave()
	}
	return e, snapshotError(err)
}

func (s *SnapshotStore) release() {
	s.db.release()
	s.leave()
}

// snapshotError gives an error of the database its counterpart in package
// snapshot.
func snapshotError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrClosed):
		return snapshot.ErrClosed
	case errors.Is(err, journal.ErrCorrupt):
		return fmt.Errorf("%w: %w", snapshot.ErrCorrupt, err)
	case errors.Is(err, journal.ErrNewerVersion):
		return fmt.Errorf("%w: %w", snapshot.ErrNewerVersion, err)
	}
	return err
}
