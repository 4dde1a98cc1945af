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
		Damage: func(t snapshottest.T, s snapshot.Store, m snapshot.Metadata) {
			if err := s.(snapshotsOf).Damage(m, m.SequenceNr%2 == 0); err != nil {
				t.Fatalf("damage: %v", err)
			}
		},
		MaxPayload: 16 << 20,
	})
}

// TestCrashConformance runs the suite of journals where each reopening is a
// power cut, on logs that are small enough to be flushed now and then.
func TestCrashConformance(t *testing.T) {
	t.Parallel()
	var disks sync.Map
	openDisk := func(tb testing.TB, d *disk) journal.Journal {
		db, err := leveldb.OpenStorage(d, d.syncDir, leveldb.Config{CachedIDs: 3}.WithLogSize(64<<10))
		if err != nil {
			tb.Fatal(err)
		}
		disks.Store(db.Journal(), d)
		tb.Cleanup(func() { _ = db.Close() })
		return journalOf{db.Journal(), db}
	}
	journaltest.Run(t, journaltest.Config{
		Open: func(tb testing.TB) journal.Journal { return openDisk(tb, newDisk(faultNone, 0, 1)) },
		Reopen: func(tb testing.TB, j journal.Journal) journal.Journal {
			d, _ := disks.Load(j.(journalOf).Journal)
			return openDisk(tb, d.(*disk).afterCut())
		},
		Stall: func(tb testing.TB, j journal.Journal) func() {
			d, _ := disks.Load(j.(journalOf).Journal)
			d.(*disk).failNextSync()
			return func() {}
		},
	})
}
