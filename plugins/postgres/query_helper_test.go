// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// never is a poll interval longer than every test.
const never = 24 * time.Hour

// openStore opens a database for a test.
func openStore(tb testing.TB, dsn string, cfg postgres.Config) *postgres.DB {
	tb.Helper()
	db, err := postgres.Open(tb.Context(), dsn, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// connect opens a connection that the plugin does not use.
func connect(tb testing.TB, dsn string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

func execute(tb testing.TB, conn *pgx.Conn, sql string, args ...any) {
	tb.Helper()
	if _, err := conn.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// eventsOf returns a write of n events after a number.
func eventsOf(id string, expect uint64, n int, tags ...string) journal.Write {
	w := journal.Write{ID: id, Writer: "w", Expect: expect}
	for i := range uint64(n) {
		seqNr := expect + 1 + i
		w.Events = append(w.Events, journal.Event{
			SequenceNr: seqNr, Time: time.UnixMicro(1_700_000_000_000_000).UTC(), Manifest: "m", Payload: fmt.Appendf(nil, "%s/%d", id, seqNr), Tags: tags,
		})
	}
	return w
}

// store appends writes.
func store(tb testing.TB, j journal.Journal, writes ...journal.Write) {
	tb.Helper()
	if errs := j.Append(tb.Context(), writes); errs != nil {
		tb.Fatal(errs)
	}
}

// readAll reads all matching events after a position, page by page, and returns the position after
// them.
func readAll(tb testing.TB, j journal.Querier, q journal.Criteria, after journal.Offset) ([]journal.Envelope, journal.Offset) {
	tb.Helper()
	var all []journal.Envelope
	for {
		page, err := j.Query(tb.Context(), q, after)
		if err != nil {
			tb.Fatalf("query %+v after %q: %v", q, after, err)
		}
		if page.Next.Compare(after) < 0 || page.More && page.Next == after {
			tb.Fatalf("query %+v after %q leads back to %q or does not advance, more: %v", q, after, page.Next, page.More)
		}
		all = append(all, page.Events...)
		after = page.Next
		if !page.More {
			return all, after
		}
	}
}

// named lists events as "id/number".
func named(events []journal.Envelope) []string {
	names := make([]string, len(events))
	for i := range events {
		names[i] = fmt.Sprintf("%s/%d", events[i].ID, events[i].SequenceNr)
	}
	return names
}
