// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/snapshot"
)

// maxLoadAttempts is how many matches Load tries to read, the youngest first.
const maxLoadAttempts = 3

// Load implements snapshot.Store. It tries the three youngest matches.
func (s *SnapshotStore) Load(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	snap, err := s.load(ctx, id, c)
	if err != nil {
		return snapshot.Snapshot{}, fmt.Errorf("leveldb: load a snapshot of %q: %w", id, err)
	}
	return snap, nil
}

func (s *SnapshotStore) load(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	e, err := s.use(ctx, id, false)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	defer s.release()
	view, err := e.db.GetSnapshot() // or a save could come between the two records
	if err != nil {
		return snapshot.Snapshot{}, snapshotError(translate(err))
	}
	defer view.Release()
	var damaged []error
	for f, err := range heads(view, id, c) {
		if err != nil {
			return snapshot.Snapshot{}, err
		}
		if !f.matches(c) {
			continue
		}
		payload, err := s.payload(view, &f)
		if err == nil {
			return snapshot.Snapshot{Metadata: f.Metadata, Manifest: f.head.manifest, Payload: payload}, nil
		}
		if !errors.Is(err, snapshot.ErrCorrupt) {
			return snapshot.Snapshot{}, err
		}
		if damaged = append(damaged, err); len(damaged) == maxLoadAttempts {
			break
		}
	}
	if damaged != nil {
		return snapshot.Snapshot{}, errors.Join(damaged...)
	}
	return snapshot.Snapshot{}, snapshot.ErrNotFound
}

// payload returns the payload of a snapshot.
func (s *SnapshotStore) payload(from leveldb.Reader, f *found) ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	if uint64(f.head.length) > uint64(s.db.cfg.MaxSnapshotSize) { //nolint:gosec // not negative
		return nil, f.corrupt(errTooLong)
	}
	payload, err := from.Get(snapshotKey(tagPayload, f.ID, f.SequenceNr), nil)
	if err != nil && !errors.Is(err, leveldb.ErrNotFound) {
		return nil, snapshotError(translate(err))
	}
	if err == nil {
		err = f.head.checkPayload(payload)
	}
	if err != nil {
		return nil, f.corrupt(err)
	}
	return payload, nil
}

// found is the first record of a snapshot, or why it can't be read.
type found struct {
	snapshot.Metadata
	head snapshotHead
	err  error
}

func (f *found) corrupt(reason error) error {
	return &snapshot.CorruptError{File: fmt.Sprintf("the snapshot of %q at %d", f.ID, f.SequenceNr), Reason: reason}
}

// matches reports whether the snapshot matches. One whose time can't be read
// does if its number does.
func (f *found) matches(c snapshot.Criteria) bool {
	return f.err != nil || c.Matches(f.Metadata)
}

// heads yields the first records of the snapshots of an ID whose numbers match,
// the highest first. An error of the database is yielded once and last. An
// iterator is held while the body of the loop runs.
func heads(from leveldb.Reader, id string, c snapshot.Criteria) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		if c.MinSequenceNr > c.MaxSequenceNr {
			return
		}
		limit := append(snapshotKey(tagSnapshot, id, c.MaxSequenceNr), 0)
		it := from.NewIterator(&util.Range{Start: snapshotKey(tagSnapshot, id, c.MinSequenceNr), Limit: limit}, nil)
		defer it.Release()
		for ok := it.Last(); ok; ok = it.Prev() {
			if !yield(readHead(id, it.Key(), it.Value()), nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(found{}, snapshotError(translate(err)))
		}
	}
}

// readHead decodes the first record of a snapshot.
func readHead(id string, key, value []byte) found {
	f := found{Metadata: snapshot.Metadata{ID: id, SequenceNr: binary.BigEndian.Uint64(key[len(key)-8:])}}
	var err error
	if f.head, err = decodeHead(key, value); err == nil {
		f.Time = f.head.time
	} else if f.err = err; !errors.Is(err, snapshot.ErrNewerVersion) {
		f.err = f.corrupt(err)
	}
	return f
}

// List implements snapshot.Store. What can't be read is passed over and named by
// the error at the end.
func (s *SnapshotStore) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return func(yield func(snapshot.Metadata, error) bool) {
		all, err := s.list(ctx, id, c)
		for i := range all {
			f := &all[i]
			err = errors.Join(err, f.err)
			if f.err == nil && c.Matches(f.Metadata) && !yield(f.Metadata, nil) {
				return
			}
		}
		if err != nil {
			yield(snapshot.Metadata{}, fmt.Errorf("leveldb: list the snapshots of %q: %w", id, err))
		}
	}
}

func (s *SnapshotStore) list(ctx context.Context, id string, c snapshot.Criteria) ([]found, error) {
	e, err := s.use(ctx, id, false)
	if err != nil {
		return nil, err
	}
	defer s.release()
	var all []found
	for f, err := range heads(e.db, id, c) {
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}
