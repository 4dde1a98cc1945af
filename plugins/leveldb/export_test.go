// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/snapshot"
)

// OpenStorage opens a database in a storage of the test's.
func OpenStorage(files storage.Storage, syncDir func() error, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return open("storage", files, syncDir, cfg)
}

// WithLogSize returns a Config with logs and tables of that size.
func (c Config) WithLogSize(n int) Config {
	c.writeBuffer = n
	return c
}

// WithReopenPause returns a Config with that pause between attempts to open the
// database again.
func (c Config) WithReopenPause(d time.Duration) Config {
	c.reopenPause = d
	return c
}

// SetOrder writes a database whose keys are ordered by a comparer of that name.
func SetOrder(dir, name string) error {
	o := Options()
	o.Comparer = named{o.Comparer, name}
	db, err := leveldb.OpenFile(dir, o)
	if err != nil {
		return err
	}
	return db.Close()
}

type named struct {
	comparer.Comparer
	name string
}

func (n named) Name() string { return n.name }

// Damage changes the last byte of a record of a stored snapshot: the payload or
// what stands before it.
func (s *SnapshotStore) Damage(m snapshot.Metadata, payload bool) error {
	tag := byte(tagSnapshot)
	if payload {
		tag = tagPayload
	}
	key := appendSnapshotKey(nil, tag, m.ID, m.SequenceNr)
	value, err := s.db.engine.get(key)
	if err != nil {
		return err
	}
	if len(value) == 0 {
		return snapshot.ErrNotFound
	}
	value[len(value)-1] ^= 1
	return s.db.engine.db.Put(key, value, nil)
}

// CachedIDs returns how many persistence IDs the journal remembers.
func (j *Journal) CachedIDs() int {
	c := j.db.engine.streams
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ring) != len(c.streams) {
		return -1
	}
	return len(c.ring)
}
