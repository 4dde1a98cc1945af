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

// lasting is a journal with the arguments to open it again.
type lasting struct {
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
	return lasting{db.TestJournal(), dsn, cfg}
}

// runJournalSuite gives each case its own schema in one database: creating a database takes longer
// than most cases.
func runJournalSuite(t *testing.T, cfg postgres.Config) {
	t.Helper()
	dsn := pgtest.DSN(t)
	var schemas atomic.Int64
	journaltest.Run(t, journaltest.Config{
		Timeout: 5 * time.Minute, // of a machine that is busy with other tests
		Open: func(tb testing.TB) journal.Journal {
			tb.Helper()
			own := cfg
			own.Schema = fmt.Sprintf("%s-%d", cmp.Or(cfg.Schema, "refold"), schemas.Add(1))
			return openJournal(tb, dsn, own)
		},
		Reopen: func(tb testing.TB, j journal.Journal) journal.Journal {
			tb.Helper()
			l, ok := j.(lasting)
			if !ok {
				tb.Fatalf("a %T", j)
			}
			if err := j.Close(); err != nil {
				tb.Fatal(err)
			}
			return openJournal(tb, l.dsn, l.cfg)
		},
		Attach: func(tb testing.TB, j journal.Journal) journal.Journal {
			tb.Helper()
			l, ok := j.(lasting)
			if !ok {
				tb.Fatalf("a %T", j)
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

type lastingStore struct {
	*postgres.SnapshotStore
	dsn string
}

func openSnapshots(t testing.TB, dsn string) snapshot.Store {
	t.Helper()
	db, err := postgres.Open(t.Context(), dsn, postgres.Config{MaxConns: 2})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return lastingStore{db.TestSnapshots(), dsn}
}

func TestSnapshotConformance(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	snapshottest.Run(t, snapshottest.Config{
		Open: func(t testing.TB) snapshot.Store { return openSnapshots(t, dsn) },
		Reopen: func(t testing.TB, s snapshot.Store) snapshot.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			return openSnapshots(t, dsn)
		},
		Damage: func(t testing.TB, _ snapshot.Store, m snapshot.Metadata) {
			damage(t, dsn, m)
		},
		MaxPayload: 16 << 20,
	})
}

// damage changes a stored snapshot without using the store.
func damage(t testing.TB, dsn string, m snapshot.Metadata) {
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // the test is over
	change := "manifest = manifest || 'x'"
	if m.SequenceNr%2 == 0 {
		change = `payload = payload || '\x00'`
	}
	tag, err := conn.Exec(t.Context(), "UPDATE refold.snapshots SET "+change+" WHERE id = $1 AND seq_nr = $2", m.ID, int64(m.SequenceNr))
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("damage %v: %v, %v", m, tag, err)
	}
}
