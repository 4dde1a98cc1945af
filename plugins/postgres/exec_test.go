// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/snapshot"
)

// A connection of the pool keeps no state for the next transaction, which may belong to another
// client of a proxy.
func TestSessionKeepsNoState(t *testing.T) {
	t.Parallel()
	for _, cached := range []bool{false, true} {
		db := openStore(t, pgtest.DSN(t), postgres.Config{MaxConns: 1, CachedStatements: cached, DisableNotify: true})
		j, snapshots := db.TestJournal(), db.TestSnapshots()
		store(t, j, eventsOf("a", 0, 1, "tag"))
		store(t, j, eventsOf("a", 1, 3), eventsOf("b", 0, 1, "tag"))
		if errs := j.Append(t.Context(), []journal.Write{eventsOf("a", 1, 3), eventsOf("b", 0, 1)}); errs == nil {
			t.Error("Append with a wrong Expect returned no conflict")
		}
		for _, err := range j.Replay(t.Context(), "a", 1, 9) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		for _, err := range j.PersistenceIDs(t.Context(), "") {
			if err != nil {
				t.Error(err)
			}
			break
		}
		readAll(t, j, journal.Criteria{Tag: "tag"}, "")
		s := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 1, Time: time.Unix(1, 0).UTC()}}
		_, lerr := snapshots.Load(t.Context(), "a", snapshot.Latest())
		if err := errors.Join(j.DeleteTo(t.Context(), "a", 2), snapshots.Save(t.Context(), s)); err != nil || !errors.Is(lerr, snapshot.ErrNotFound) {
			t.Fatal(err, lerr)
		}
		held, err := db.SessionState(t.Context())
		if err != nil || cached == (held == 0) {
			t.Errorf("cached statements %v: the session holds %d objects, %v", cached, held, err)
		}
	}
}

// A plan that was made for small tables does not scan whole tables after they have grown.
func TestPlansAfterGrowth(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted %v", deleted), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			admin := connect(t, dsn)
			db := openStore(t, dsn, postgres.Config{MaxConns: 1, DisableNotify: true})
			execute(t, admin, "ALTER TABLE refold.events SET (autovacuum_enabled = off)")
			if deleted {
				execute(t, admin, "INSERT INTO refold.deletions VALUES ('c', 7)")
			}
			store(t, db.TestJournal(), eventsOf("a", 0, 1))
			execute(t, admin, "ANALYZE refold.events")
			const rounds = 10
			for i := range uint64(rounds) {
				store(t, db.TestJournal(), eventsOf("a", 1+3*i, 1))
				store(t, db.TestJournal(), eventsOf("a", 2+3*i, 2), eventsOf("b", i, 1))
			}
			if err := db.Close(); err != nil { // closed sessions report their statistics
				t.Fatal(err)
			}
			until(t, "the server to update its statistics", func() bool {
				var scans, inserted int64
				err := admin.QueryRow(t.Context(), "SELECT seq_scan, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'events'").Scan(&scans, &inserted)
				if err != nil {
					t.Fatal(err)
				}
				if scans > 3 { // once for each index that was built
					t.Errorf("the table of events was read as a whole %d times, want at most 3", scans)
				}
				return inserted == 1+4*rounds || t.Failed()
			})
		})
	}
}

// TestCertain lists which errors prove that their statement was not committed.
func TestCertain(t *testing.T) {
	t.Parallel()
	server := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: severity, Code: code})
	}
	for _, c := range []struct {
		subject string
		err     error
		want    bool
	}{
		{"a row that exists", server("ERROR", "23505"), true},
		{"canceled or timed out", server("ERROR", "57014"), true},
		{"a full disk", server("ERROR", "53100"), true},
		{"read-only", server("ERROR", "25006"), true},
		{"a deadlock", server("ERROR", "40P01"), true},
		{"no right", server("ERROR", "42501"), true},
		{"shut down by an administrator", server("FATAL", "57P01"), false},
		{"shut down, reported by a proxy", server("ERROR", "57P01"), false},
		{"a crash of another process", server("WARNING", "57P02"), false},
		{"a connection that a proxy has lost", server("ERROR", "08006"), false},
		{"an error of a proxy", server("FATAL", "08P01"), false},
		{"an input or output error", server("ERROR", "58030"), false},
		{"an internal error", server("ERROR", "XX000"), false},
		{"reported as unknown", server("ERROR", "40003"), false},
		{"a panic", server("PANIC", "53100"), false},
		{"an error of an old server", &pgconn.PgError{Severity: "ERROR", Code: "23505"}, true},
		{"an empty code", server("ERROR", ""), false},
		{"the end of the stream", io.ErrUnexpectedEOF, false},
	} {
		if got := postgres.Certain(c.err); got != c.want {
			t.Errorf("%s: Certain = %v, want %v", c.subject, got, c.want)
		}
	}
}

func FuzzDecodeConflicts(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5}, 2)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, b []byte, chains int) {
		if n, err := postgres.DecodeConflicts(b, chains); err == nil && n > chains {
			t.Errorf("decoded %d conflicts, want at most %d, the number of chains", n, chains)
		}
	})
}

// The size of the pool comes from the configuration, or else from the connection string. The
// default is sufficient for many concurrent recoveries.
func TestPoolSize(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for name, c := range map[string]struct {
		dsn  string
		cfg  postgres.Config
		want int
	}{
		"default":           {dsn, postgres.Config{}, max(16, runtime.NumCPU())},
		"connection string": {pgtest.With(t, dsn, map[string]string{"pool_max_conns": "3"}), postgres.Config{}, 3},
		"both":              {pgtest.With(t, dsn, map[string]string{"pool_max_conns": "3"}), postgres.Config{MaxConns: 5}, 5},
	} {
		if got := openStore(t, c.dsn, c.cfg).PoolSize(); got != c.want {
			t.Errorf("%s: %d connections, want %d", name, got, c.want)
		}
	}
}
