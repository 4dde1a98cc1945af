// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

func TestSettledBelow(t *testing.T) {
	t.Parallel()
	const keys = postgres.LockKeys
	for _, c := range []struct {
		name    string
		drawn   int64
		keys    []int64
		settled int64
	}{
		{"no append", 100, nil, 100},
		{"one append", 100, []int64{90}, 90},
		{"the lowest of several", 100, []int64{95, 90, 99}, 90},
		{"an append without an ordinal", 100, []int64{100}, 100},
		{"an append that began after the sequence was read", 100, []int64{140}, 100},
		{"both", 100, []int64{140, 60}, 60},
		{"before the first", 100, []int64{1}, 1},
		{"key 0", keys + 10, []int64{0}, keys},
		{"across the wrap", keys + 10, []int64{keys - 5}, keys - 5},
		{"ahead across the wrap", 3*keys - 1, []int64{3}, 3*keys - 1},
		{"very old", 5*keys + 7, []int64{8 + 1<<20}, 4*keys + 8 + 1<<20},
		{"no ordinal has this key yet", 100, []int64{keys / 2}, 100},
	} {
		settled, held := postgres.SettledBelow(c.drawn, c.keys)
		if settled != c.settled || held != (c.settled < c.drawn) {
			t.Errorf("%s: settled up to %d, held %v, want %d", c.name, settled, held, c.settled)
		}
	}
}

// TestLateCommitBlocksReaders starts two appends and ends them in the opposite order.
func TestLateCommitBlocksReaders(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"COMMIT", "ROLLBACK", "killed"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			db := openStore(t, dsn, postgres.Config{})
			j := db.TestJournal()
			store(t, j, eventsOf("first", 0, 1))
			late, tx := appendLate(t, db, dsn, eventsOf("late", 0, 2))
			store(t, j, eventsOf("early", 0, 2))
			got, next := readAll(t, j, journal.Criteria{}, "")
			if want := []string{"first/1"}; !slices.Equal(named(got), want) {
				t.Fatalf("read %v before the late append was settled, want %v", named(got), want)
			}
			if end, err := j.End(t.Context()); err != nil || end != next {
				t.Fatalf("the end is %q (%v), want %q", end, err, next)
			}
			want := []string{"late/1", "late/2", "early/1", "early/2"}
			switch outcome {
			case "COMMIT":
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			case "ROLLBACK":
				want = want[2:]
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			default:
				want = want[2:]
				execute(t, connect(t, dsn), "SELECT pg_terminate_backend($1, 60000)", int32(late.PgConn().PID()))
			}
			if err := j.Await(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			if got, _ := readAll(t, j, journal.Criteria{}, next); !slices.Equal(named(got), want) {
				t.Errorf("read %v after the late append was settled, want %v", named(got), want)
			}
		})
	}
}

// appendLate appends in a transaction that stays open.
func appendLate(t *testing.T, db *postgres.DB, dsn string, writes ...journal.Write) (*pgx.Conn, pgx.Tx) {
	t.Helper()
	conn := connect(t, dsn)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.AppendIn(t.Context(), tx, writes...); err != nil {
		t.Fatal(err)
	}
	return conn, tx
}

// TestLockIsBelowDrawnOrdinals checks that an append holds one lock whose key is lower than all of
// its ordinals. The watermark depends on this property.
func TestLockIsBelowDrawnOrdinals(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	for n, size := range []struct{ ids, events int }{{1, 1}, {1, 2}, {2, 1}, {3, 2}, {500, 2}, {2000, 1}} {
		var writes []journal.Write
		for i := range size.ids {
			writes = append(writes, eventsOf(fmt.Sprintf("round %d|%d", n, i), 0, size.events, "a", "b"))
		}
		conn, tx := appendLate(t, db, dsn, writes...)
		var key, first, locks int64
		err := conn.QueryRow(t.Context(), `SELECT count(*), coalesce(min(objid::bigint), 0) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = $1 AND pid = pg_backend_pid()`,
			int64(uint32(postgres.LockClass("refold")))).Scan(&locks, &key)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), `SELECT min(ordinal) FROM refold.events WHERE id LIKE $1`, fmt.Sprintf("round %d|%%", n)).Scan(&first); err != nil {
			t.Fatal(err)
		}
		if locks != 1 || key >= first {
			t.Errorf("%+v: %d locks with the lowest key %d, want 1 lock with a key below the first ordinal %d", size, locks, key, first)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignTransactionsDoNotBlockReaders(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db, other := openStore(t, dsn, postgres.Config{}), openStore(t, dsn, postgres.Config{Schema: "other"})
	j := db.TestJournal()
	conn := connect(t, dsn)
	execute(t, conn, "CREATE TABLE mine (n int)")
	execute(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	execute(t, conn, "INSERT INTO mine VALUES (1)")
	execute(t, conn, "SELECT pg_advisory_xact_lock(1)")
	appendLate(t, other, dsn, eventsOf("of another schema", 0, 1))
	store(t, j, eventsOf("a", 0, 3))
	if err := j.Await(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got, _ := readAll(t, j, journal.Criteria{}, ""); len(got) != 3 {
		t.Errorf("read %v during a long transaction, want 3 events", named(got))
	}
}

// TestPreparedTransactionBlocksReaders keeps an append prepared during a crash of the server.
func TestPreparedTransactionBlocksReaders(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{Settings: map[string]string{"max_prepared_transactions": "10"}})
	dsn := server.DSN(t)
	func() {
		db := openStore(t, dsn, postgres.Config{})
		late, _ := appendLate(t, db, dsn, eventsOf("late", 0, 1))
		execute(t, late, "PREPARE TRANSACTION 'late'")
		store(t, db.TestJournal(), eventsOf("early", 0, 1))
		if got, _ := readAll(t, db.TestJournal(), journal.Criteria{}, ""); len(got) != 0 {
			t.Errorf("read %v during a prepared append, want nothing", named(got))
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	server.Kill()
	server.Restart(t)
	db := openStore(t, dsn, postgres.Config{})
	if got, _ := readAll(t, db.TestJournal(), journal.Criteria{}, ""); len(got) != 0 {
		t.Errorf("read %v during a prepared append, after a crash, want nothing", named(got))
	}
	execute(t, connect(t, dsn), "COMMIT PREPARED 'late'")
	if got, _ := readAll(t, db.TestJournal(), journal.Criteria{}, ""); !slices.Equal(named(got), []string{"late/1", "early/1"}) {
		t.Errorf("read %v after both transactions were committed", named(got))
	}
}

// TestForgottenDraws kills the server after ordinals were drawn and not committed. The restarted
// server draws them again, so the position of a reader must be below them.
func TestForgottenDraws(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	j := db.TestJournal()
	store(t, j, eventsOf("kept", 0, 1))
	_, tx := appendLate(t, db, dsn, eventsOf("lost", 0, 200)) // more than the server logs ahead
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, next := readAll(t, j, journal.Criteria{}, "")
	if len(got) != 1 || next != got[0].Offset {
		t.Errorf("read %v up to %q, want an end at a stored event", named(got), next)
	}
	server.Kill()
	server.Restart(t)
	again := openStore(t, dsn, postgres.Config{})
	store(t, again.TestJournal(), eventsOf("new", 0, 3))
	if got, _ := readAll(t, again.TestJournal(), journal.Criteria{}, next); len(got) != 3 {
		t.Errorf("read %v after %q after a crash, want 3 events", named(got), next)
	}
}

// TestForgottenDrawsDoNotRewind kills the server after readers have seen ordinals that it had not
// yet written to its log. No read event is lost, so the readers continue, and receive the events
// that use these ordinals immediately.
func TestForgottenDrawsDoNotRewind(t *testing.T) {
	t.Parallel()
	for name, rolledBack := range map[string]bool{"in progress": false, "rolled back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Config{Settings: map[string]string{"wal_writer_delay": "10s", "wal_buffers": "16MB"}})
			dsn := server.DSN(t)
			db := openStore(t, dsn, postgres.Config{PollInterval: never, DisableNotify: true})
			j := db.TestJournal()
			store(t, j, eventsOf("kept", 0, 1))
			_, tx := appendLate(t, db, dsn, eventsOf("lost", 0, 1000))
			if rolledBack { // the server may log the ordinals of a rollback, but seldom in time
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_, next := readAll(t, j, journal.Criteria{}, "")
			server.Kill()
			server.Restart(t)
			for err := errors.New("not called"); err != nil; { // until the pool has no connection to the killed server
				if _, err = j.HighestSequenceNr(t.Context(), "kept"); err != nil && !errors.Is(err, journal.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			store(t, j, eventsOf("new", 0, 3))
			if got, _ := readAll(t, j, journal.Criteria{}, next); len(got) != 3 {
				t.Errorf("read %v after %q after a crash, want 3 events", named(got), next)
			}
		})
	}
}

// Other appends bring the sequence back to the value that a reader has seen before a crash of the
// server. The reader receives their events.
func TestForgottenDrawsReturn(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	j := db.TestJournal()
	store(t, j, eventsOf("kept", 0, 1))
	_, tx := appendLate(t, db, dsn, eventsOf("lost", 0, 3))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, next := readAll(t, j, journal.Criteria{}, "")
	execute(t, connect(t, dsn), "SELECT setval('refold.ordinals', (SELECT max(ordinal) FROM refold.events))") // like a crash
	store(t, j, eventsOf("new", 0, 3))
	if got, _ := readAll(t, j, journal.Criteria{}, next); !slices.Equal(named(got), []string{"new/1", "new/2", "new/3"}) {
		t.Errorf("read %v after a crash, want the 3 new events", named(got))
	}
}

func TestInvalidSequence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, sql, mentions string }{
		{"restored without its value", "SELECT setval('refold.ordinals', 3)", "restored without"},
		{"cached", "ALTER SEQUENCE refold.ordinals CACHE 5", "CACHE 1"},
		{"cycling", "ALTER SEQUENCE refold.ordinals MAXVALUE 1000 CYCLE", "NO CYCLE"},
		{"falling", "ALTER SEQUENCE refold.ordinals INCREMENT 2", "INCREMENT 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			store(t, openStore(t, dsn, postgres.Config{}).TestJournal(), eventsOf("a", 0, 5))
			execute(t, connect(t, dsn), c.sql)
			_, err := openStore(t, dsn, postgres.Config{}).TestJournal().Query(t.Context(), journal.Criteria{}, "")
			if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), c.mentions) {
				t.Errorf("error %v, want ErrSchema that mentions %q", err, c.mentions)
			}
		})
	}
}

func TestRewoundServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	store(t, db.TestJournal(), eventsOf("a", 0, 5))
	_, next := readAll(t, db.TestJournal(), journal.Criteria{}, "")
	conn := connect(t, dsn)
	execute(t, conn, "DELETE FROM refold.events WHERE seq_nr > 2")
	execute(t, conn, "SELECT setval('refold.ordinals', (SELECT max(ordinal) FROM refold.events))")
	if _, err := db.TestJournal().Query(t.Context(), journal.Criteria{}, next); !errors.Is(err, postgres.ErrRewound) {
		t.Errorf("error %v, want ErrRewound", err)
	}
	if err := db.TestJournal().Await(t.Context(), next); err != nil {
		t.Errorf("await: %v, want nil: the next query returns the error", err)
	}
	again := openStore(t, dsn, postgres.Config{})
	if _, err := again.TestJournal().Query(t.Context(), journal.Criteria{}, next); !errors.Is(err, journal.ErrOffset) {
		t.Errorf("an offset after the last ordinal: %v, want ErrOffset", err)
	}
}

// TestStandby restarts the server as a standby.
func TestStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	store(t, db.TestJournal(), eventsOf("a", 0, 5))
	conn := connect(t, dsn)
	var dir string
	if err := conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if err := os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)
	standby := openStore(t, dsn, postgres.Config{CheckOnly: true})
	if _, err := standby.TestJournal().Query(t.Context(), journal.Criteria{}, ""); !errors.Is(err, postgres.ErrReadOnly) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("a query on a standby: %v, want ErrReadOnly", err)
	}
	if _, err := standby.TestJournal().End(t.Context()); !errors.Is(err, postgres.ErrReadOnly) {
		t.Errorf("the end on a standby: %v, want ErrReadOnly", err)
	}
	if err := standby.TestJournal().WaitForAppends(t.Context()); !errors.Is(err, postgres.ErrReadOnly) {
		t.Errorf("a look at the appends of a standby: %v, want ErrReadOnly", err)
	}
	// A standby may lack the last events.
	for name, j := range map[string]*postgres.Journal{"an open journal": db.TestJournal(), "a new journal": standby.TestJournal()} {
		until(t, "a connection to the standby", func() bool {
			_, err := j.HighestSequenceNr(t.Context(), "a")
			return !errors.Is(err, journal.ErrUnavailable)
		})
		if _, err := j.HighestSequenceNr(t.Context(), "a"); !errors.Is(err, postgres.ErrReadOnly) {
			t.Errorf("%s: highest sequence number on a standby: %v, want ErrReadOnly", name, err)
		}
		var refused []error
		for _, err := range j.Replay(t.Context(), "a", 1, 9) {
			refused = append(refused, err)
		}
		for _, after := range []string{"", "a"} { // a page with an ID, and an empty one
			for _, err := range j.PersistenceIDs(t.Context(), after) {
				refused = append(refused, err)
			}
		}
		for _, err := range refused {
			if !errors.Is(err, postgres.ErrReadOnly) {
				t.Errorf("%s: a replay or a list on a standby: %v, want ErrReadOnly", name, err)
			}
		}
		if len(refused) != 3 {
			t.Errorf("%s: %d results of a replay and two lists on a standby, want 3 errors", name, len(refused))
		}
	}
}
