// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// withHangTimeout returns a context with a time-out that is reached only if an operation hangs.
func withHangTimeout(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), 5*time.Minute)
}

// until calls f until it returns true, or fails the test when it takes too long. The pause between
// two calls grows, because f usually queries the server.
func until(t *testing.T, subject string, f func() bool) bool {
	t.Helper()
	ctx, cancel := withHangTimeout(t)
	defer cancel()
	pause := 2 * time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for !f() {
		select {
		case <-timer.C:
			pause = min(2*pause, 50*time.Millisecond)
			timer.Reset(pause)
		case <-ctx.Done():
			t.Errorf("timed out waiting for %s", subject)
			return false
		}
	}
	return true
}

// target is a database that can be reached directly and through proxies.
type target struct {
	dsn    string
	direct *postgres.DB
	tables *pgxpool.Pool // reads the tables without the plugin
}

func newTarget(t *testing.T, dsn string) *target {
	t.Helper()
	s := &target{dsn: dsn, direct: openStore(t, dsn, postgres.Config{MaxConns: 10, DisableNotify: true})}
	tables, err := pgxpool.New(t.Context(), pgtest.With(t, dsn, map[string]string{"application_name": "tables", "pool_max_conns": "10"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tables.Close)
	s.tables = tables
	return s
}

// openThroughProxy opens the database through a new proxy. The server shows the connections under
// the name.
func (s *target) openThroughProxy(t *testing.T, name string, cfg postgres.Config) (*tcpproxy.Proxy, *postgres.DB, error) {
	t.Helper()
	proxy := tcpproxy.Start(t, pgtest.Upstream(t, s.dsn))
	dsn := pgtest.With(t, pgtest.Via(t, s.dsn, proxy.Addr()), map[string]string{"application_name": name})
	ctx, cancel := withHangTimeout(t)
	defer cancel()
	db, err := postgres.Open(ctx, dsn, cfg)
	return proxy, db, err
}

// sessions returns the number of sessions on the server with a name that match an SQL condition.
func (s *target) sessions(t *testing.T, name, where string) int {
	t.Helper()
	var n int
	sql := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND (" + where + ")"
	if err := s.tables.QueryRow(t.Context(), sql, name).Scan(&n); err != nil {
		t.Errorf("count the sessions: %v", err)
	}
	return n
}

// awaitSessionsEnded waits until the server has ended all sessions with a name. They can commit
// nothing afterwards.
func (s *target) awaitSessionsEnded(t *testing.T, name string) bool {
	t.Helper()
	return until(t, "connections of "+name+" to end", func() bool { return t.Failed() || s.sessions(t, name, "true") == 0 })
}

// record is a row of the table of events.
type record struct {
	SeqNr            int64
	Writer, Manifest string
	Payload          []byte
}

// rows returns the rows of a persistence ID, by sequence number.
func (s *target) rows(t *testing.T, id string) []record {
	t.Helper()
	rows, err := s.tables.Query(t.Context(), "SELECT seq_nr, writer, manifest, payload FROM refold.events WHERE id = $1 ORDER BY seq_nr", id)
	if err != nil {
		t.Errorf("read the table: %v", err)
		return nil
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[record])
	if err != nil {
		t.Errorf("read the table: %v", err)
	}
	return all
}

// fenceAt returns a fence for a write. When the fence is stored, the write can no longer be stored.
func fenceAt(w journal.Write) journal.Write {
	return journal.Write{ID: w.ID, Writer: "fence", Expect: w.Expect, Events: []journal.Event{{SequenceNr: w.Expect + 1, Time: w.Events[0].Time}}}
}

// each calls f for each number below n, and runs at most atOnce calls at a time.
func each(n, atOnce int, f func(i int)) {
	var wait sync.WaitGroup
	numbers := make(chan int)
	for range min(n, atOnce) {
		wait.Go(func() {
			for i := range numbers {
				f(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wait.Wait()
}
