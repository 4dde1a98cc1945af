// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// patience is how long a check of a suite may take on a machine that is busy with other tests.
const patience = 5 * time.Minute

// lasting is a journal with its directory or its disk, from which it can be opened again.
type lasting struct {
	*leveldb.Journal
	dir  string
	disk *disk
}

// unqueried is a lasting journal without the optional interfaces of queries.
type unqueried struct {
	journal.Journal
	all lasting
}

func (u unqueried) Local() bool { return u.all.Local() }

func asLasting(tb testing.TB, j journal.Journal) lasting {
	tb.Helper()
	if u, ok := j.(unqueried); ok {
		return u.all
	}
	l, ok := j.(lasting)
	if !ok {
		tb.Fatalf("unexpected type %T", j)
	}
	return l
}

func inDir(tb testing.TB, dir string) journal.Journal {
	tb.Helper()
	db, err := leveldb.Open(dir, leveldb.Config{}.WithLogSize(testLog))
	if err != nil {
		tb.Fatal(err)
	}
	return lasting{Journal: db.TestJournal(), dir: dir}
}

func TestJournalConformance(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, journaltest.Config{
		Timeout: patience,
		Local:   true,
		Open: func(tb testing.TB) journal.Journal {
			tb.Helper()
			return inDir(tb, tb.TempDir())
		},
		Reopen: func(tb testing.TB, j journal.Journal) journal.Journal {
			tb.Helper()
			if err := j.Close(); err != nil {
				tb.Fatal(err)
			}
			return inDir(tb, asLasting(tb, j).dir)
		},
	})
}

// TestCrashConformance runs the suite of journals with a power cut at each reopening. The logs are
// small enough to be flushed occasionally. The engine has a data race when a flush fails, so with
// the race detector the logs are so large that few are flushed. With the race detector, the checks
// of queries run only if REFOLD_SOAK is set, because TestJournalConformance finds the same races.
func TestCrashConformance(t *testing.T) {
	t.Parallel()
	logSize := 64 << 10
	if effort.Race() {
		logSize = 2 << 20
	}
	openDisk := func(tb testing.TB, d *disk) journal.Journal {
		tb.Helper()
		db, err := leveldb.OpenStorage(d, d.syncDir, leveldb.Config{CachedIDs: 3}.WithLogSize(logSize))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = db.Close() })
		j := lasting{Journal: db.TestJournal(), disk: d}
		if effort.Race() && !effort.Soak() {
			return unqueried{Journal: j, all: j}
		}
		return j
	}
	journaltest.Run(t, journaltest.Config{
		Timeout: patience,
		Local:   true,
		Open: func(tb testing.TB) journal.Journal {
			tb.Helper()
			return openDisk(tb, newDisk(faultNone, 0, 1))
		},
		Reopen: func(tb testing.TB, j journal.Journal) journal.Journal {
			tb.Helper()
			return openDisk(tb, asLasting(tb, j).disk.afterCut())
		},
		Stall: func(tb testing.TB, j journal.Journal) func() {
			tb.Helper()
			asLasting(tb, j).disk.failNextSync()
			return func() {}
		},
	})
}

type lastingStore struct {
	*leveldb.SnapshotStore
	dir string
}

func storeInDir(tb testing.TB, dir string, part int) snapshot.Store {
	tb.Helper()
	db, err := leveldb.Open(dir, leveldb.Config{}.WithLogSize(testLog).WithPart(part))
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return lastingStore{db.TestSnapshots(), dir}
}

func TestSnapshotConformance(t *testing.T) {
	t.Parallel()
	runSnapshotSuite(t, 0)
}

func TestSnapshotConformanceInParts(t *testing.T) {
	t.Parallel()
	runSnapshotSuite(t, 16<<10)
}

func runSnapshotSuite(t *testing.T, part int) {
	t.Helper()
	asLasting := func(tb testing.TB, s snapshot.Store) lastingStore {
		tb.Helper()
		l, ok := s.(lastingStore)
		if !ok {
			tb.Fatalf("unexpected type %T", s)
		}
		return l
	}
	snapshottest.Run(t, snapshottest.Config{
		Open: func(tb testing.TB) snapshot.Store {
			tb.Helper()
			return storeInDir(tb, tb.TempDir(), part)
		},
		Reopen: func(tb testing.TB, s snapshot.Store) snapshot.Store {
			tb.Helper()
			if err := s.Close(); err != nil {
				tb.Fatalf("close: %v", err)
			}
			return storeInDir(tb, asLasting(tb, s).dir, part)
		},
		Damage: func(tb testing.TB, s snapshot.Store, m snapshot.Metadata) {
			tb.Helper()
			if err := asLasting(tb, s).Damage(m, m.SequenceNr%2 == 0); err != nil {
				tb.Fatalf("damage: %v", err)
			}
		},
		Local: true,
	})
}
