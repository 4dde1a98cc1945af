// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"crypto/rand"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refold-io/refold/internal/testkit/pgserver"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// storeOwn stores events 1 to 3 of two IDs. The third ones need no check.
func storeOwn(t *testing.T, j journal.Journal) {
	t.Helper()
	store(t, j, eventsOf("a", 0, 2), eventsOf("b", 0, 2))
	storeNext(t, j, 2)
}

// storeNext stores an event of the two IDs.
func storeNext(t *testing.T, j journal.Journal, expect uint64) {
	t.Helper()
	store(t, j, eventsOf("a", expect, 1), eventsOf("b", expect, 1))
}

// wantConflict appends events to the two IDs and expects a conflict of a with a highest number.
func wantConflict(t *testing.T, j journal.Journal, expect, highest uint64) {
	t.Helper()
	errs := j.Append(t.Context(), []journal.Write{eventsOf("a", expect, 1), eventsOf(rand.Text(), 0, 1)})
	if errs == nil {
		t.Fatalf("an event of a after %d was stored, want a conflict with %d", expect, highest)
	}
	if conflict, ok := errors.AsType[*journal.ConflictError](errs[0]); !ok || conflict.Highest != highest || errs[1] != nil {
		t.Errorf("append after %d: %v, want a conflict of the first write with %d", expect, errs, highest)
	}
}

// Events that another process than DeleteTo deletes, changes or replaces leave no gap, although this
// process has stored the last event of an ID.
func TestNoGapAfterManualChange(t *testing.T) {
	t.Parallel()
	const disabled = "ALTER TABLE refold.events DISABLE TRIGGER ALL;"
	const enabled = "ALTER TABLE refold.events ENABLE ALWAYS TRIGGER next_epoch;"
	for name, c := range map[string]struct {
		sql     string
		highest uint64
	}{
		"delete":                {"DELETE FROM refold.events WHERE seq_nr >= 3", 2},
		"delete, replica":       {"SET session_replication_role = replica; DELETE FROM refold.events WHERE seq_nr >= 3", 2},
		"truncate":              {"TRUNCATE refold.events", 0},
		"truncate all":          {"TRUNCATE refold.events, refold.deletions, refold.tags", 0},
		"update":                {"UPDATE refold.events SET id = 'd' WHERE id = 'a' AND seq_nr = 3", 2},
		"other table":           {"ALTER TABLE refold.events RENAME TO former; CREATE TABLE refold.events (LIKE refold.former INCLUDING ALL)", 0},
		"other epoch row":       {disabled + "DELETE FROM refold.events; DELETE FROM refold.epochs; INSERT INTO refold.epochs (changes) VALUES (0);" + enabled, 0},
		"no epoch row":          {disabled + "DELETE FROM refold.events; DELETE FROM refold.epochs;" + enabled, 0},
		"disabled trigger":      {disabled + "DELETE FROM refold.events", 0},
		"no trigger":            {"DROP TRIGGER next_epoch ON refold.events; DELETE FROM refold.events", 0},
		"pg_restore":            {disabled + "DELETE FROM refold.events; ALTER TABLE refold.events ENABLE TRIGGER ALL", 0},
		"deletions, empty":      {"INSERT INTO refold.deletions VALUES ('a', 2); DELETE FROM refold.events WHERE id = 'a'; DELETE FROM refold.deletions", 0},
		"deletions, no trigger": {"ALTER TABLE refold.deletions DISABLE TRIGGER ALL; INSERT INTO refold.deletions VALUES ('a', 2); DELETE FROM refold.events WHERE id = 'a'; DELETE FROM refold.deletions", 0},
		"deletions":             {"INSERT INTO refold.deletions VALUES ('a', 2); DELETE FROM refold.events WHERE id = 'a'", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			j := openStore(t, dsn, postgres.Config{}).TestJournal()
			storeOwn(t, j)
			execute(t, connect(t, dsn), c.sql, pgx.QueryExecModeSimpleProtocol)
			wantConflict(t, j, 3, c.highest)
		})
	}
}

// Another process stores events of an ID, and may delete them. Their numbers are not used again.
func TestNoReuseAfterOtherProcess(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j, other := openStore(t, dsn, postgres.Config{}).TestJournal(), openStore(t, dsn, postgres.Config{}).TestJournal()
	storeOwn(t, j)
	store(t, other, eventsOf("a", 3, 1))
	wantConflict(t, j, 3, 4)
	store(t, j, eventsOf("a", 4, 1), eventsOf("b", 3, 1))
	store(t, other, eventsOf("a", 5, 1))
	if err := other.DeleteTo(t.Context(), "a", 6); err != nil {
		t.Fatal(err)
	}
	wantConflict(t, j, 5, 6)
	var changes int
	if err := connect(t, dsn).QueryRow(t.Context(), "SELECT changes FROM refold.epochs").Scan(&changes); err != nil || changes != 0 {
		t.Errorf("DeleteTo has started %d epochs, %v, want none", changes, err)
	}
}

// The number of an ID is not that of another ID with the same hash.
func TestOwnEventsWithSameHash(t *testing.T) {
	t.Parallel()
	db := openStore(t, pgtest.DSN(t), postgres.Config{})
	store(t, db.TestJournal(), eventsOf("b", 0, 3), eventsOf("c", 0, 3))
	other := db.SameSlot("b")
	errs := db.TestJournal().Append(t.Context(), []journal.Write{eventsOf(other, 3, 1), eventsOf("d", 0, 1)})
	if errs == nil || !errors.Is(errs[0], journal.ErrConflict) {
		t.Errorf("append after a number of another ID: %v, want ErrConflict", errs)
	}
}

// An append that returns after the begin of another epoch does not belong to it.
func TestOwnEventsOfFormerEpoch(t *testing.T) {
	t.Parallel()
	if postgres.AddToFormerEpoch() {
		t.Error("an event of a former epoch was added to the current one")
	}
}

// A restored dump lacks events that this process has stored.
func TestNoGapAfterRestoredDump(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	bin, err := pgserver.FindBinaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	installed, err := filepath.EvalSymlinks(filepath.Join(bin, "postgres")) // the clients are beside the server
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(installed), name), args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	j := openStore(t, dsn, postgres.Config{}).TestJournal()
	storeOwn(t, j)
	dump := filepath.Join(t.TempDir(), "dump")
	run("pg_dump", "--format=custom", "--file="+dump, dsn)
	storeNext(t, j, 3)
	run("pg_restore", "--clean", "--dbname="+dsn, dump)
	wantConflict(t, j, 4, 3)
	store(t, j, eventsOf("a", 3, 1), eventsOf("b", 3, 1))
	execute(t, connect(t, dsn), "TRUNCATE refold.events; TRUNCATE refold.epochs; TRUNCATE refold.migrations", pgx.QueryExecModeSimpleProtocol)
	run("pg_restore", "--data-only", "--dbname="+dsn, dump)
	wantConflict(t, j, 4, 3)
}

// A copy of the database in the same server lacks events that this process has stored. It takes the name
// of the database.
func TestNoGapAfterRestoredCopy(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Config{})
	dsn := server.DSN(t)
	admin, database := connect(t, server.DSN(t)), name(t, dsn)
	j := openStore(t, dsn, postgres.Config{}).TestJournal()
	withoutSessions := func(sql string) {
		t.Helper()
		var err error
		if !until(t, sql, func() bool {
			execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", database)
			_, err = admin.Exec(t.Context(), sql)
			return err == nil
		}) {
			t.Fatal(err)
		}
	}
	untilHighest := func(want uint64) {
		t.Helper()
		until(t, "a new connection", func() bool {
			highest, err := j.HighestSequenceNr(t.Context(), "a")
			return err == nil && highest == want
		})
	}
	storeOwn(t, j)
	withoutSessions("CREATE DATABASE copy TEMPLATE " + database)
	untilHighest(3)
	storeNext(t, j, 3)
	withoutSessions("ALTER DATABASE " + database + " RENAME TO former")
	execute(t, admin, "ALTER DATABASE copy RENAME TO "+database)
	untilHighest(3)
	wantConflict(t, j, 4, 3)
}

// A TRUNCATE removes the events of an epoch that began after the snapshot of its transaction.
func TestNoGapAfterTruncateWithOldSnapshot(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j, old, conn := openStore(t, dsn, postgres.Config{}).TestJournal(), connect(t, dsn), connect(t, dsn)
	execute(t, conn, "INSERT INTO refold.deletions VALUES ('z', 1)")
	execute(t, old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM refold.deletions", pgx.QueryExecModeSimpleProtocol)
	execute(t, conn, "DELETE FROM refold.deletions")
	storeOwn(t, j)
	_, err := old.Exec(t.Context(), "TRUNCATE refold.events; COMMIT", pgx.QueryExecModeSimpleProtocol)
	if failed, ok := errors.AsType[*pgconn.PgError](err); !ok || failed.Code != "40001" {
		t.Errorf("TRUNCATE beside a new epoch: %v, want a serialization failure", err)
		wantConflict(t, j, 3, 0)
	}
}

// A promoted standby lacks an event that this process has stored.
func TestNoGapAfterPromotion(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	j := openStore(t, p.dsn, postgres.Config{}).TestJournal()
	p.awaitSync(t)
	storeOwn(t, j)
	setStandby(t, p.admin(t), "")
	p.standby.Stop()
	storeNext(t, j, 3)
	p.primary.Stop()
	p.standby.Restart(t)
	p.promote(t)
	until(t, "a connection to the new primary", func() bool {
		highest, err := j.HighestSequenceNr(t.Context(), "a")
		return err == nil && highest == 3
	})
	wantConflict(t, j, 4, 3)
}

// A statement on a partition does not fire the triggers of its table, so there is no epoch.
func TestNoEpochWithPartitions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	execute(t, connect(t, dsn), `ALTER TABLE refold.events RENAME TO former;
		CREATE TABLE refold.events (LIKE refold.former INCLUDING ALL) PARTITION BY HASH (id);
		CREATE TABLE refold.events_0 PARTITION OF refold.events FOR VALUES WITH (MODULUS 1, REMAINDER 0);
		CREATE TRIGGER next_epoch AFTER UPDATE OR DELETE OR TRUNCATE ON refold.events FOR EACH STATEMENT EXECUTE FUNCTION refold.next_epoch();
		ALTER TABLE refold.events ENABLE ALWAYS TRIGGER next_epoch`, pgx.QueryExecModeSimpleProtocol)
	storeOwn(t, db.TestJournal())
	if db.OwnEvents() != 0 {
		t.Errorf("with partitions, the journal holds the highest numbers of %d IDs, want none", db.OwnEvents())
	}
}

// A crash of a process of the server empties an unlogged table, so there is no epoch.
func TestNoEpochOfUnloggedTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	execute(t, connect(t, dsn), "ALTER TABLE refold.events SET UNLOGGED")
	storeOwn(t, db.TestJournal())
	if db.OwnEvents() != 0 {
		t.Errorf("with an unlogged table, the journal holds the highest numbers of %d IDs, want none", db.OwnEvents())
	}
}

// Without durable commits there is no epoch, because a crash of the server may lose events.
func TestNoEpochWithoutDurability(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	storeOwn(t, db.TestJournal())
	if db.OwnEvents() != 2 {
		t.Errorf("the journal holds the highest numbers of %d IDs, want 2", db.OwnEvents())
	}
	execute(t, connect(t, dsn), "ALTER DATABASE "+name(t, dsn)+" SET synchronous_commit = off")
	db = openStore(t, dsn, postgres.Config{})
	store(t, db.TestJournal(), eventsOf("d", 0, 1), eventsOf("e", 0, 1))
	if db.OwnEvents() != 0 {
		t.Errorf("without durable commits, the journal holds the highest numbers of %d IDs, want none", db.OwnEvents())
	}
}
