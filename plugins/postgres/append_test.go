// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// gate blocks appends of the writer "slow" in the server, after they have read the stored events
// and before they store anything.
type gate struct {
	admin *pgx.Conn
}

func newGate(t *testing.T, dsn string) *gate {
	t.Helper()
	g := &gate{connect(t, dsn)}
	execute(t, g.admin, `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.writer = 'slow' THEN
				PERFORM pg_advisory_xact_lock(7);
			END IF;
			RETURN NEW;
		END $$`)
	execute(t, g.admin, "CREATE TRIGGER hold BEFORE INSERT ON refold.events FOR EACH ROW EXECUTE FUNCTION hold()")
	execute(t, g.admin, "SELECT pg_advisory_lock(7)")
	return g
}

// begin appends writes as the slow writer. It returns when they are blocked, with the process ID of
// the backend.
func (g *gate) begin(t *testing.T, j journal.Journal, writes ...journal.Write) (outcome <-chan []error, pid int32) {
	t.Helper()
	for i := range writes {
		writes[i].Writer = "slow"
	}
	appended := make(chan []error, 1)
	go func() { appended <- j.Append(context.WithoutCancel(t.Context()), writes) }()
	until(t, "a held append", func() bool {
		err := g.admin.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'`).Scan(&pid)
		return err == nil
	})
	return appended, pid
}

func (g *gate) open(t *testing.T) {
	t.Helper()
	execute(t, g.admin, "SELECT pg_advisory_unlock(7)")
}

// Another writer stores an event between the check of an append and its insert. The server rolls
// back the whole statement. All writes without a conflict are stored by the next attempt.
func TestConflictInTheMiddle(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := openStore(t, dsn, postgres.Config{MaxConns: 2}).TestJournal()
	store(t, j, eventsOf("c", 0, 2))
	g := newGate(t, dsn)
	outcome, _ := g.begin(t, j, eventsOf("a", 0, 1), eventsOf("b", 0, 2, "tag"), eventsOf("b", 2, 1), eventsOf("c", 2, 1), eventsOf("d", 0, 1))
	store(t, j, eventsOf("b", 0, 3), eventsOf("d", 0, 1))
	g.open(t)
	errs := <-outcome
	for i, highest := range map[int]uint64{1: 3, 4: 1} {
		if conflict, ok := errors.AsType[*journal.ConflictError](errs[i]); !ok || conflict.Highest != highest {
			t.Errorf("write %d: %v, want a conflict with %d", i, errs[i], highest)
		}
	}
	if errs[0] != nil || errs[3] != nil || !errors.Is(errs[2], journal.ErrSkipped) {
		t.Errorf("the other IDs: %v, %v; after the conflict: %v, want ErrSkipped", errs[0], errs[3], errs[2])
	}
	for id, want := range map[string]uint64{"a": 1, "b": 3, "c": 3, "d": 1} {
		if got, err := j.HighestSequenceNr(t.Context(), id); got != want || err != nil {
			t.Errorf("highest of %s: %d, %v, want %d", id, got, err, want)
		}
	}
}

// A deletion waits for an append that checked the ID before the deletion. Without the wait, the
// append would store a sequence number a second time.
func TestDeletionWaitsForOlderAppends(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := openStore(t, dsn, postgres.Config{MaxConns: 2}).TestJournal()
	deleter := openStore(t, pgtest.With(t, dsn, map[string]string{"application_name": "deleter"}), postgres.Config{MaxConns: 1, DisableNotify: true}).TestJournal()
	store(t, j, eventsOf("a", 0, 5))
	g := newGate(t, dsn)
	outcome, _ := g.begin(t, j, eventsOf("a", 5, 1), eventsOf("b", 0, 1))
	store(t, j, eventsOf("a", 5, 2))
	deleted := make(chan error, 1)
	go func() { deleted <- deleter.DeleteTo(context.WithoutCancel(t.Context()), "a", 6) }()
	until(t, "the deletion to wait or to continue", func() bool {
		var query string
		err := g.admin.QueryRow(t.Context(), "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'deleter'").Scan(&query)
		return err == nil && (strings.Contains(query, "pg_locks") || strings.Contains(query, "gone") && len(deleted) > 0)
	})
	select {
	case err := <-deleted:
		t.Fatalf("the deletion returned %v before the older append ended", err)
	default:
	}
	store(t, j, eventsOf("c", 0, 1)) // no transaction blocks it
	g.open(t)
	errs := <-outcome
	if !errors.Is(errs[0], journal.ErrConflict) || errs[1] != nil {
		t.Errorf("the older append: %v, want ErrConflict for the first write only", errs)
	}
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	var left []uint64
	for e, err := range j.Replay(t.Context(), "a", 1, 99) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, e.SequenceNr)
	}
	if !slices.Equal(left, []uint64{7}) {
		t.Errorf("the remaining events are %v, want only 7", left)
	}
	wantRejected := func() {
		t.Helper()
		for _, expect := range []uint64{0, 4, 5, 6, 8} {
			for n := 1; n <= 2; n++ {
				if err := j.Append(t.Context(), []journal.Write{eventsOf("a", expect, n)}); err == nil || !errors.Is(err[0], journal.ErrConflict) {
					t.Errorf("append of %d after %d: %v, want ErrConflict", n, expect, err)
				}
			}
		}
	}
	wantRejected()
	if err := deleter.DeleteTo(t.Context(), "a", journal.MaxSequenceNr); err != nil {
		t.Fatal(err)
	}
	wantRejected() // although no event is left
	store(t, j, eventsOf("a", 7, 1))
}

// An error that the server reports for an append is certain. If the connection ends instead, the
// outcome is unknown.
func TestAppendAbortedByServer(t *testing.T) {
	t.Parallel()
	for function, sure := range map[string]bool{"pg_cancel_backend": true, "pg_terminate_backend": false} {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprint(function, n), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				j := openStore(t, dsn, postgres.Config{MaxConns: 2}).TestJournal()
				g := newGate(t, dsn)
				outcome, pid := g.begin(t, j, eventsOf("a", 0, n))
				execute(t, g.admin, "SELECT "+function+"($1)", pid)
				err := (<-outcome)[0]
				if sure != errors.Is(err, journal.ErrNotSent) || sure == errors.Is(err, journal.ErrUnavailable) {
					t.Errorf("append: %v, want a certain error", err)
				}
				g.open(t)
				store(t, j, eventsOf("a", 0, 1)) // neither append has stored an event
			})
		}
	}
}

// Two nodes that append to the same IDs in opposite orders do not deadlock.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	const rounds, ids = 60, 200
	journals := []journal.Journal{openStore(t, dsn, postgres.Config{MaxConns: 1}).TestJournal(), openStore(t, dsn, postgres.Config{MaxConns: 1}).TestJournal()}
	for round := range uint64(rounds) {
		outcomes := make([]chan []error, len(journals))
		for n, j := range journals {
			writes := make([]journal.Write, ids)
			for i := range writes {
				writes[i] = eventsOf(fmt.Sprintf("%03d", i), round, 1)
			}
			if n == 1 {
				slices.Reverse(writes)
			}
			outcomes[n] = make(chan []error, 1)
			go func() { outcomes[n] <- j.Append(context.WithoutCancel(t.Context()), writes) }()
		}
		stored := 2 * ids
		for _, outcome := range outcomes {
			for i, err := range <-outcome {
				if err == nil {
					continue
				}
				stored--
				if !errors.Is(err, journal.ErrConflict) {
					t.Errorf("round %d, write %d: %v, want ErrConflict", round, i, err)
				}
			}
		}
		if stored != ids {
			t.Fatalf("round %d: %d writes were stored, want %d", round, stored, ids)
		}
	}
}

// Appends require an isolation level in which each statement sees earlier commits.
func TestIsolationLevel(t *testing.T) {
	t.Parallel()
	dsn := pgtest.With(t, pgtest.DSN(t), map[string]string{"options": `-c default_transaction_isolation=repeatable\ read`})
	j := openStore(t, dsn, postgres.Config{}).TestJournal()
	for _, n := range []int{1, 2} {
		err := j.Append(t.Context(), []journal.Write{eventsOf("a", 0, n)})[0]
		if !journal.NotStored(err) || !strings.Contains(err.Error(), "REPEATABLE READ") {
			t.Errorf("append of %d events: %v, want a certain error that names the isolation level", n, err)
		}
	}
}

// A sequence with a lower value than the events is reported as an error, not as a conflict.
func TestOrdinalDrawnTwice(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := openStore(t, dsn, postgres.Config{}).TestJournal()
	store(t, j, eventsOf("a", 0, 10))
	execute(t, connect(t, dsn), "SELECT setval('refold.ordinals', 1)")
	for _, n := range []int{1, 2} {
		err := j.Append(t.Context(), []journal.Write{eventsOf("b", 0, n)})[0]
		if !errors.Is(err, postgres.ErrSchema) || !errors.Is(err, journal.ErrNotSent) || errors.Is(err, journal.ErrConflict) {
			t.Errorf("append of %d events: %v, want ErrSchema and ErrNotSent, but not ErrConflict", n, err)
		}
	}
}

// An append that is too large for one statement is divided, with each ID once in a statement.
func TestParts(t *testing.T) {
	t.Parallel()
	large := make([]byte, 16<<20)
	var writes []journal.Write
	for i := range uint64(6) {
		for _, id := range []string{"b", "a"} {
			w := eventsOf(id, i, 1)
			w.Events[0].Payload = large
			writes = append(writes, w)
		}
	}
	writes = append(writes, eventsOf("c", 0, 1))
	parts := postgres.Parts(writes)
	if got := fmt.Sprint(parts); got != "[[a] [a] [b] [b c]]" {
		t.Errorf("the parts are %s, want [[a] [a] [b] [b c]]", got)
	}
	if got := fmt.Sprint(postgres.Parts([]journal.Write{eventsOf("b", 0, 1), eventsOf("a", 0, 1), eventsOf("b", 1, 1), eventsOf("b", 1, 1)})); got != "[[a b]]" {
		t.Errorf("the parts are %s, want [[a b]]", got)
	}
}

// An append is stored only if its statement returns exactly one row.
func TestAppendWithoutResult(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := openStore(t, dsn, postgres.Config{}).TestJournal()
	admin := connect(t, dsn)
	execute(t, admin, "DROP FUNCTION refold.append_one; DROP FUNCTION refold.append_batch", pgx.QueryExecModeSimpleProtocol)
	for _, rows := range []string{"SELECT NULL::%s WHERE false", "VALUES (NULL::%[1]s), (NULL::%[1]s)"} {
		execute(t, admin, `CREATE OR REPLACE FUNCTION refold.append_one(integer, text, bigint, smallint, timestamptz, text, text, bytea, text[], bytea)
			RETURNS SETOF bigint LANGUAGE sql AS '`+fmt.Sprintf(rows, "bigint")+`'`)
		execute(t, admin, `CREATE OR REPLACE FUNCTION refold.append_batch(integer, text, text[], bigint[], text[], bigint[], smallint[], timestamptz[], text[], text[], bytea[], text[], bytea[])
			RETURNS SETOF text LANGUAGE sql AS '`+fmt.Sprintf(rows, "text")+`'`)
		for n := 1; n <= 2; n++ {
			if errs := j.Append(t.Context(), []journal.Write{eventsOf("a", 0, n)}); errs == nil || errs[0] == nil || journal.NotStored(errs[0]) {
				t.Errorf("append of %d events with the result %q: %v, want an unknown outcome", n, rows, errs)
			}
		}
	}
}
