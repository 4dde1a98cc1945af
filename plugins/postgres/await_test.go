// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// awaiting waits for an event after an offset, in a goroutine.
func awaiting(ctx context.Context, j journal.Querier, after journal.Offset) <-chan error {
	done := make(chan error, 1)
	go func() { done <- j.Await(ctx, after) }()
	return done
}

// listening waits until a database has a listener, and returns its process ID.
func listening(t *testing.T, dsn string) (pid int32) {
	t.Helper()
	conn := connect(t, dsn)
	until(t, "a session that listens", func() bool {
		return conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %' AND state = 'idle'`).Scan(&pid) == nil
	})
	return pid
}

// TestAwait runs a reader that waits for events of another process. Before the second event the
// reader loses its connection.
func TestAwait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		cfg    postgres.Config
		notify bool
	}{
		{"notified", postgres.Config{PollInterval: never}, true},
		{"polling", postgres.Config{DisableNotify: true, PollInterval: time.Millisecond}, false},
		{"polling by default", postgres.Config{DisableNotify: true}, false},
		{"listener without a server", postgres.Config{NotifyDSN: "postgres://nobody@127.0.0.1:1/nothing", PollInterval: time.Millisecond}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			reading, writing := openStore(t, dsn, c.cfg).TestJournal(), openStore(t, dsn, postgres.Config{}).TestJournal()
			var next journal.Offset
			for n := range uint64(3) {
				done := awaiting(t.Context(), reading, next)
				if c.notify {
					pid := listening(t, dsn)
					if n == 1 {
						execute(t, connect(t, dsn), "SELECT pg_terminate_backend($1, 60000)", pid)
					}
				}
				store(t, writing, eventsOf("a", n, 1))
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				var got []journal.Envelope
				if got, next = readAll(t, reading, journal.Criteria{}, next); len(got) != 1 || got[0].SequenceNr != n+1 {
					t.Fatalf("after Await the query returned %v, want event %d", named(got), n+1)
				}
			}
		})
	}
}

// TestAwaitHeldBack runs a reader that queries while an earlier append is in progress, and that
// receives no notification when the append ends.
func TestAwaitHeldBack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	deaf := postgres.Config{DisableNotify: true, PollInterval: never}
	reading, writing := openStore(t, dsn, deaf), openStore(t, dsn, deaf)
	_, tx := appendLate(t, writing, dsn, eventsOf("late", 0, 1))
	store(t, writing.TestJournal(), eventsOf("early", 0, 1))
	done := awaiting(t.Context(), reading.TestJournal(), "")
	for reading.Refreshes() == 0 {
		runtime.Gosched()
	}
	select {
	case err := <-done:
		t.Fatalf("Await returned %v before an event was visible", err)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestAwaitAfterAnotherRefresh runs a reader that waits for an event that another reader has
// already found.
func TestAwaitAfterAnotherRefresh(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{PollInterval: never})
	j, writing := db.TestJournal(), openStore(t, dsn, postgres.Config{DisableNotify: true}).TestJournal()
	done := awaiting(t.Context(), j, "")
	listening(t, dsn)
	store(t, writing, eventsOf("a", 0, 1))
	if err := db.Refresh(t.Context()); err != nil { // needed: the writer sends no notification
		t.Fatal(err)
	}
	if err := j.Await(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	second := awaiting(t.Context(), j, postgres.FormatOffset(1<<40)) // a new waiting reader causes a refresh
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Await ended with %v, want ErrClosed", err)
	}
}

func TestAwaitEnds(t *testing.T) {
	t.Parallel()
	db := openStore(t, pgtest.DSN(t), postgres.Config{})
	db.TestSnapshots() // stays open
	j := db.TestJournal()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := awaiting(ctx, j, "")
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("Await ended with %v, want the cause", err)
	}
	if err := j.Await(t.Context(), "another's"); !errors.Is(err, journal.ErrOffset) {
		t.Errorf("Await of a bad offset ended with %v, want ErrOffset", err)
	}
	done = awaiting(t.Context(), j, "")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Await ended with %v, want ErrClosed", err)
	}
	if err := j.Await(t.Context(), ""); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Await of a closed journal: %v, want ErrClosed", err)
	}
	if _, err := j.End(t.Context()); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("End of a closed journal: %v, want ErrClosed", err)
	}
}

func TestBadNotifyDSN(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), pgtest.DSN(t), postgres.Config{NotifyDSN: "postgres://user:hush@host:port/"})
	if !errors.Is(err, postgres.ErrDSN) || strings.Contains(err.Error(), "hush") {
		t.Errorf("error %v, want ErrDSN without the password", err)
	}
}
