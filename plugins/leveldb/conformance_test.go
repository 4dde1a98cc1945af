// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"sync"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// dirs remembers where a journal or store lives.
type dirs struct{ m sync.Map }

func (d *dirs) open(tb fataler, dir string, cfg leveldb.Config) *leveldb.DB {
	db, err := leveldb.Open(dir, cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	d.m.Store(db.Journal(), dir)
	d.m.Store(db.Snapshots(), dir)
	return db
}

func (d *dirs) of(tb fataler, handle any) string {
	dir, ok := d.m.Load(handle)
	if !ok {
		tb.Fatalf("unknown handle %v", handle)
	}
	return dir.(string)
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// journalOf is a journal whose Close closes the database.
type journalOf struct {
	*leveldb.Journal
	db *leveldb.DB
}

func (j journalOf) Close() error { return j.db.Close() }

type snapshotsOf struct {
	*leveldb.SnapshotStore
	db *leveldb.DB
}

func (s snapshotsOf) Close() error { return s.db.Close() }

func TestJournalConformance(t *testing.T) {
	t.Parallel()
	var known dirs
	journaltest.Run(t, journaltest.Config{
		Open: func(tb testing.TB) journal.Journal {
			db := known.open(tb, tb.TempDir(), leveldb.Config{})
			return journalOf{db.Journal(), db}
		},
		Reopen: func(tb testing.TB, j journal.Journal) journal.Journal {
			if err := j.Close(); err != nil {
				tb.Fatal(err)
			}
			db := known.open(tb, known.of(tb, j.(journalOf).Journal), leveldb.Config{})
			return journalOf{db.Journal(), db}
		},
	})
}

func TestSnapshotConformance(t *testing.T) {
	t.Parallel()
	var known dirs
	snapshottest.Run(t, snapshottest.Config{
		Open: func(t snapshottest.T) snapshot.Store {
			db := known.open(t, t.TempDir(), leveldb.Config{})
			return snapshotsOf{db.Snapshots(), db}
		},
		Reopen: func(t snapshottest.T, s snapshot.Store) snapshot.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			db := known.open(t, known.of(t, s.(snapshotsOf).SnapshotStore), leveldb.Config{})
			return snapshotsOf{db.Snapshots(), db}
		},
	})
}
