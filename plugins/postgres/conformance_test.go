// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// reopenable is a journal with the arguments to open it again.
type reopenable struct {
	*postgres.Journal
	dsn string
	cfg postgres.Config
}

func openJournal(tb testing.TB, dsn string, cfg postgres.Config) journal.Journal {
	tb.Helper()
	db, err := postgres.Open(tb.Context(), dsn, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return reopenable{db.TestJournal(), dsn, cfg}
}

// runJournalSuite gives each case its own schema in one database, because creating a database takes
// longer than most cases.
func runJournalSuite(t *testing.T, cfg postgres.Config) {
	t.Helper()
	dsn := pgtest.DSN(t)
	var schemas atomic.Int64
	journaltest.Run(t, journaltest.Config{
		Timeout: 5 * time.Minute, // for a machine that is busy with other tests
		Open: func(tb testing.TB) journal.Journal {
			tb.Helper()
			own := cfg
			own.Schema = fmt.Sprintf("%s-%d", cmp.Or(cfg.Schema, "refold"), schemas.Add(1))
			return openJournal(tb, dsn, own)
		},
		Reopen: func(tb testing.TB, j journal.Journal) journal.Journal {
			tb.Helper()
			l, ok := j.(reopenable)
			if !ok {
				tb.Fatalf("unexpected type %T", j)
			}
			if err := j.Close(); err != nil {
				tb.Fatal(err)
			}
			return openJournal(tb, l.dsn, l.cfg)
		},
		Attach: func(tb testing.TB, j journal.Journal) journal.Journal {
			tb.Helper()
			l, ok := j.(reopenable)
			if !ok {
				tb.Fatalf("unexpected type %T", j)
			}
			return openJournal(tb, l.dsn, l.cfg)
		},
	})
}

func TestJournalConformance(t *testing.T) {
	t.Parallel()
	runJournalSuite(t, postgres.Config{MaxConns: 3})
}

// With a pool of one connection, no call of the suite may wait for itself.
func TestJournalConformanceOneConnection(t *testing.T) {
	t.Parallel()
	runJournalSuite(t, postgres.Config{MaxConns: 1, CachedStatements: true, Schema: "Other-1"})
}

type reopenableStore struct {
	*postgres.SnapshotStore
	dsn string
}

func openSnapshots(tb testing.TB, dsn string) snapshot.Store {
	tb.Helper()
	db, err := postgres.Open(tb.Context(), dsn, postgres.Config{MaxConns: 2})
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return reopenableStore{db.TestSnapshots(), dsn}
}

func TestSnapshotConformance(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	snapshottest.Run(t, snapshottest.Config{
		Open: func(tb testing.TB) snapshot.Store {
			tb.Helper()
			return openSnapshots(tb, dsn)
		},
		Reopen: func(tb testing.TB, s snapshot.Store) snapshot.Store {
			tb.Helper()
			if err := s.Close(); err != nil {
				tb.Fatalf("close: %v", err)
			}
			return openSnapshots(tb, dsn)
		},
		Damage: func(tb testing.TB, _ snapshot.Store, m snapshot.Metadata) {
			tb.Helper()
			damage(tb, dsn, m)
		},
		MaxPayload: 16 << 20,
	})
}

// damage changes a stored snapshot without using the store.
func damage(tb testing.TB, dsn string, m snapshot.Metadata) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), dsn)
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	defer conn.Close(tb.Context()) //nolint:errcheck // the test is over
	change := "manifest = manifest || 'x'"
	if m.SequenceNr%2 == 0 {
		change = `payload = payload || '\x00'`
	}
	tag, err := conn.Exec(tb.Context(), "UPDATE refold.snapshots SET "+change+" WHERE id = $1 AND seq_nr = $2", m.ID, int64(m.SequenceNr))
	if err != nil || tag.RowsAffected() != 1 {
		tb.Fatalf("damage %v: %v, %v", m, tag, err)
	}
}
