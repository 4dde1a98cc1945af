// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/snapshot"
)

// setStandby makes commits wait for a standby, or for none. It returns when the setting is in effect.
func setStandby(t *testing.T, admin *pgx.Conn, name string) {
	t.Helper()
	execute(t, admin, "ALTER SYSTEM SET synchronous_standby_names = '"+name+"'")
	execute(t, admin, "SELECT pg_reload_conf()")
	if name == "" {
		return // the server ends the waits
	}
	probe := connect(t, admin.Config().ConnString())
	until(t, "commits to wait for the standby", func() bool { // a process of its own enables the wait
		done := make(chan error, 1)
		go func() {
			_, err := probe.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'probe', '')")
			done <- err
		}()
		for {
			var canceled bool
			if admin.QueryRow(t.Context(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&canceled) == nil {
				return <-done == nil
			}
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
				return false
			default:
			}
		}
	})
}

// untilWaiting waits for a session that waits for a standby, and returns its process ID.
func untilWaiting(t *testing.T, admin *pgx.Conn) (pid int32) {
	t.Helper()
	until(t, "a commit that waits for the standby", func() bool {
		return admin.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&pid) == nil
	})
	return pid
}

// A commit whose wait for a synchronous standby is canceled may be lost in a fail-over. Neither the
// append nor a conflict with its events proves that they are stored.
func TestCanceledWaitForStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	execute(t, connect(t, dsn), "ALTER DATABASE "+name(t, dsn)+" SET client_min_messages = error")
	db := openStore(t, dsn, postgres.Config{DisableNotify: true})
	j, snapshots := db.TestJournal(), db.TestSnapshots()
	store(t, j, eventsOf("deleted", 0, 1))
	admin := connect(t, dsn)
	setStandby(t, admin, "away")

	call := func(f func(ctx context.Context) error, cancel func(cancel context.CancelFunc)) error {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		outcome := make(chan error, 1)
		go func() { outcome <- f(ctx) }()
		untilWaiting(t, admin)
		cancel(stop)
		return <-outcome
	}
	appending := func(w journal.Write) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(j.Append(ctx, []journal.Write{w})...) }
	}
	byServer := func(context.CancelFunc) { execute(t, admin, "SELECT pg_cancel_backend($1)", untilWaiting(t, admin)) }
	byCaller := func(stop context.CancelFunc) { stop() }
	byEnd := func(context.CancelFunc) { execute(t, admin, "SELECT pg_terminate_backend($1)", untilWaiting(t, admin)) }
	cached := openStore(t, dsn, postgres.Config{DisableNotify: true, CachedStatements: true})
	for i, cancel := range []func(context.CancelFunc){byCaller, byServer, byEnd, byCaller} {
		if i == 3 {
			j = cached.TestJournal()
		}
		for n := 1; n <= 2; n++ {
			w := eventsOf([]string{"caller", "server", "ending", "cached"}[i]+strings.Repeat("+", n), 0, n)
			if err := call(appending(w), cancel); err == nil || journal.NotStored(err) {
				t.Errorf("append to %q: %v, want an unknown outcome", w.ID, err)
			}
			if err := call(appending(w), cancel); err == nil || journal.NotStored(err) {
				t.Errorf("append to %q that conflicts: %v, want an unknown outcome", w.ID, err)
			}
		}
	}
	snap := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: "a", SequenceNr: 5, Time: time.Unix(1, 0).UTC()}}
	if err := call(func(ctx context.Context) error { return snapshots.Save(ctx, snap) }, byCaller); err == nil {
		t.Error("a snapshot that may not have reached the standby was reported as saved")
	}
	if err := call(func(ctx context.Context) error { return snapshots.Delete(ctx, "a", snapshot.Criteria{All: true}) }, byCaller); err == nil {
		t.Error("a deletion of a snapshot that may not have reached the standby was reported as done")
	}
	if err := call(func(ctx context.Context) error { return j.DeleteTo(ctx, "deleted", 1) }, byCaller); err == nil {
		t.Error("a deletion that may not have reached the standby was reported as done")
	}

	setStandby(t, admin, "") // as if the standby were back
	for _, id := range []string{"caller+", "caller++", "server+", "server++", "ending+", "ending++", "cached+", "cached++"} {
		if err := appending(eventsOf(id, 0, len(id)-len("caller")))(t.Context()); !errors.Is(err, journal.ErrConflict) {
			t.Errorf("append to %q after the standby is back: %v, want ErrConflict", id, err)
		}
	}
}

// Of several servers, the journal uses the primary.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	standby := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	openStore(t, dsn, postgres.Config{})
	copied := connect(t, standby.DSN(t)) // the servers of a process have the same password
	execute(t, copied, "CREATE DATABASE "+name(t, dsn))
	via := pgtest.Via(t, dsn, standby.Addr())
	openStore(t, via, postgres.Config{})
	var dir string
	if err := copied.QueryRow(t.Context(), "SHOW data_directory").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	standby.Stop()
	if err := os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	standby.Restart(t)
	u, err := url.Parse(via)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Del("host")
	query.Del("port")
	u.Host, u.RawQuery = standby.Addr()+","+server.Addr(), query.Encode()
	store(t, openStore(t, u.String(), postgres.Config{CheckOnly: true}).TestJournal(), eventsOf("a", 0, 1))
}
