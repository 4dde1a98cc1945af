// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/snapshot"
)

const (
	// gatherOne fails for the parameter "poison". gatherMany fails if one of its parameters is that one,
	// and returns how many callers the statement has.
	gatherOne  = `SELECT $1 || ' alone' || CASE WHEN $1 = 'poison' THEN 1 / length(left($1, 0)) ELSE 0 END`
	gatherMany = `SELECT r.n, r.id || ' of ' || count(*) OVER () || ' ' || CASE WHEN r.id = 'poison' THEN 1 / length(left(r.id, 0)) ELSE 0 END
		FROM unnest($1) WITH ORDINALITY AS r(id, n)`
)

// gatherTest makes concurrent calls of a gatherer.
type gatherTest struct {
	*postgres.Gatherer
	running sync.WaitGroup
	mu      sync.Mutex
	results map[string]string // by parameter; those of errors begin with "error"
}

func newGatherTest(tb testing.TB, dsn, many string) *gatherTest {
	tb.Helper()
	g := &gatherTest{Gatherer: openStore(tb, dsn, postgres.Config{}).Gatherer(gatherOne, many), results: make(map[string]string)}
	tb.Cleanup(g.Wait)
	return g
}

// call makes a call in the background. If calls are held, it returns when the call waits.
func (g *gatherTest) call(ctx context.Context, param string, bad bool) (done <-chan struct{}) {
	before, ended := g.Waiting(), make(chan struct{})
	g.running.Go(func() {
		defer close(ended)
		value, err := g.Run(ctx, param, bad)
		if err != nil {
			value = "error " + err.Error()
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.results[param] = value
	})
	for g.Waiting() == before {
		runtime.Gosched()
	}
	return ended
}

func (g *gatherTest) want(t *testing.T, param, want string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := g.results[param]; !strings.HasPrefix(got, want) {
		t.Errorf("%s: %q, want %q", param, got, want)
	}
}

// A call that finds no other one has a statement of its own. Calls that wait share a statement, at most
// 100 of them.
func TestGather(t *testing.T) {
	t.Parallel()
	g := newGatherTest(t, pgtest.DSN(t), gatherMany)
	if got, err := g.Run(t.Context(), "first", false); got != "first alone0" || err != nil {
		t.Errorf("a single call: %q, %v", got, err)
	}
	release := g.Hold()
	for i := range 150 {
		g.call(t.Context(), fmt.Sprint(i), false)
	}
	release()
	g.running.Wait()
	for i := range 150 {
		want := "of 100 "
		if i >= 100 {
			want = "of 50 "
		}
		g.want(t, fmt.Sprint(i), fmt.Sprintf("%d %s", i, want))
	}
	if got, err := g.Run(t.Context(), "last", false); got != "last alone0" || err != nil {
		t.Errorf("a single call afterwards: %q, %v", got, err)
	}
}

// Beside a statement in flight, another one starts for sixteen callers that wait, but not for fewer.
func TestGatherStartsForMany(t *testing.T) {
	t.Parallel()
	g := newGatherTest(t, pgtest.DSN(t), gatherMany)
	g.Occupy(1, time.Hour)
	for i := range 15 {
		g.call(t.Context(), fmt.Sprint(i), false)
	}
	g.mu.Lock()
	if len(g.results) != 0 {
		t.Errorf("with 15 callers, the results are %v, want none", g.results)
	}
	g.mu.Unlock()
	g.call(t.Context(), "15", false)
	g.running.Wait()
	g.want(t, "0", "0 of 16")
	g.Land()
}

// Callers do not wait for a slow statement.
func TestGatherPatience(t *testing.T) {
	t.Parallel()
	g := newGatherTest(t, pgtest.DSN(t), gatherMany)
	g.Occupy(1, time.Millisecond)
	if got, err := g.Run(t.Context(), "a", false); got != "a of 1 0" || err != nil {
		t.Errorf("a call beside a slow statement: %q, %v, want a statement for one caller", got, err)
	}
	g.Land()
}

// A caller whose patience ended while no further statement could start does not wait for all of those in
// flight.
func TestGatherPatienceAgain(t *testing.T) {
	t.Parallel()
	g := newGatherTest(t, pgtest.DSN(t), gatherMany)
	g.Occupy(4, time.Microsecond)
	g.call(t.Context(), "a", false)
	for range 1000 {
		runtime.Gosched()
	}
	g.Land()
	g.Land()
	g.running.Wait()
	g.want(t, "a", "a of 1")
	g.Land()
	g.Land()
}

// An error of the server for one caller reaches no other caller.
func TestGatherIsolatesErrors(t *testing.T) {
	t.Parallel()
	g := newGatherTest(t, pgtest.DSN(t), gatherMany)
	release := g.Hold()
	for _, param := range []string{"a", "poison", "b"} {
		g.call(t.Context(), param, false)
	}
	release()
	g.running.Wait()
	g.want(t, "a", "a alone")
	g.want(t, "poison", "error ERROR: division by zero")
	g.want(t, "b", "b alone")
}

// The callers of a failed statement repeat it four at a time, so that they don't take all connections.
func TestGatherRepeatsInTurns(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	g := newGatherTest(t, dsn, gatherMany)
	g.SetOne(`SELECT $1 || ' alone' FROM (SELECT pg_advisory_xact_lock_shared(1) OFFSET 0) l`)
	conn := connect(t, dsn)
	execute(t, conn, "SELECT pg_advisory_lock(1)")
	release := g.Hold()
	for _, param := range []string{"poison", "a", "b", "c", "d", "e", "f", "g"} {
		g.call(t.Context(), param, false)
	}
	release()
	var blocked int
	for g.Attempts() < 8 || blocked < 4 {
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
	if blocked != 4 || g.Repeats() != 4 {
		t.Errorf("%d callers repeat their statements at the same time, want 4", blocked)
	}
	execute(t, conn, "SELECT pg_advisory_unlock(1)")
	g.running.Wait()
	g.want(t, "g", "g alone")
}

// A caller whose rows can't be decoded reads them again with its own statement. The others don't.
func TestGatherRepeatsMalformedRows(t *testing.T) {
	t.Parallel()
	g := newGatherTest(t, pgtest.DSN(t), gatherMany)
	release := g.Hold()
	g.call(t.Context(), "a", false)
	g.call(t.Context(), "b", true)
	release()
	g.running.Wait()
	g.want(t, "a", "a of 2")
	g.want(t, "b", "b alone")
}

// A caller whose context ends leaves the others, before the statement and during the statement.
func TestGatherLeave(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	g := newGatherTest(t, dsn, `SELECT r.n, r.id || ' of ' || count(*) OVER () || l.got
		FROM (SELECT pg_advisory_xact_lock(1)::text AS got) l, unnest($1) WITH ORDINALITY AS r(id, n)`)
	conn := connect(t, dsn)
	execute(t, conn, "SELECT pg_advisory_lock(1)")
	release := g.Hold()
	cause := errors.New("enough")
	early, leaveEarly := context.WithCancelCause(t.Context())
	late, leaveLate := context.WithCancelCause(t.Context())
	earlyDone := g.call(early, "early", false)
	lateDone := g.call(late, "late", false)
	g.call(t.Context(), "stays", false)
	leaveEarly(cause)
	<-earlyDone
	release()
	for g.Waiting() > 0 {
		runtime.Gosched()
	}
	leaveLate(cause)
	<-lateDone
	execute(t, conn, "SELECT pg_advisory_unlock(1)")
	g.running.Wait()
	g.want(t, "early", "error enough")
	g.want(t, "late", "error enough")
	g.want(t, "stays", "stays of 2")
}

// A statement ends when the contexts of all its callers have ended.
func TestGatherAllLeave(t *testing.T) {
	t.Parallel()
	g := newGatherTest(t, pgtest.DSN(t), `SELECT r.n, r.id || s.slept FROM (SELECT pg_sleep(1000)::text AS slept) s, unnest($1) WITH ORDINALITY AS r(id, n)`)
	release := g.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	g.call(ctx, "a", false)
	g.call(ctx, "b", false)
	release()
	for g.Waiting() > 0 {
		runtime.Gosched()
	}
	cancel()
	g.running.Wait()
	g.Wait() // for the statement, which would take 1000 s
	g.want(t, "a", "error context canceled")
}

// Recoveries that share statements read the same as those that don't.
func TestGatheredRecoveries(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openStore(t, dsn, postgres.Config{})
	j, snaps := db.TestJournal(), db.TestSnapshots()
	const ids = 30
	id := func(n int) string { return fmt.Sprintf("a|%d", n) }
	for n := range ids {
		w := journal.Write{ID: id(n), Writer: "w"}
		for k := range n * 5 { // up to 145 events
			e := journal.Event{SequenceNr: uint64(k + 1), Manifest: fmt.Sprint("m", k%2), Payload: []byte(fmt.Sprint(n, k)), Tags: []string{"t"}}
			if n%7 == 3 && k == 9 {
				e.Payload = bytes.Repeat([]byte{byte(n)}, 5000)
			}
			w.Events = append(w.Events, e)
		}
		if len(w.Events) > 0 {
			store(t, j, w)
		}
		if n%5 == 4 {
			if err := j.DeleteTo(t.Context(), id(n), uint64(n)); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []int{1, n} {
			s := snapshot.Snapshot{Metadata: snapshot.Metadata{ID: id(n), SequenceNr: uint64(at)}, Manifest: "s", Payload: bytes.Repeat([]byte{byte(n)}, n*3000)}
			if n%3 > 0 {
				if err := snaps.Save(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if n == 10 && at == 10 {
				damage(t, dsn, s.Metadata)
			}
		}
	}
	read := func(n int) string {
		var out strings.Builder
		s, err := snaps.Load(t.Context(), id(n), snapshot.Criteria{})
		fmt.Fprintln(&out, s.SequenceNr, s.Time, len(s.Payload), bytes.Count(s.Payload, []byte{byte(n)}), errors.Is(err, snapshot.ErrNotFound), err)
		highest, err := j.HighestSequenceNr(t.Context(), id(n))
		fmt.Fprintln(&out, highest, err)
		for e, err := range j.Replay(t.Context(), id(n), s.SequenceNr, highest) {
			fmt.Fprintln(&out, e, err)
		}
		return out.String()
	}
	var want [ids]string
	for n := range ids {
		want[n] = read(n)
	}
	got := make([]string, ids)
	release := db.HoldReads()
	var running sync.WaitGroup
	for n := range ids {
		running.Go(func() { got[n] = read(n) })
	}
	for db.WaitingReads() < ids {
		runtime.Gosched()
	}
	release()
	running.Wait()
	for n := range ids {
		if got[n] != want[n] {
			t.Errorf("entity %d reads\n%.2000s\nwant\n%.2000s", n, got[n], want[n])
		}
	}
}

// lookGate replaces the look at the appends in progress. Looks return the names in the table held, and
// wait while conn has the advisory lock 1.
func lookGate(t *testing.T) (db *postgres.DB, conn *pgx.Conn, looks func() int) {
	t.Helper()
	dsn := pgtest.DSN(t)
	db, conn = openStore(t, dsn, postgres.Config{}), connect(t, dsn)
	execute(t, conn, `CREATE TABLE refold.held (name text);
		CREATE SEQUENCE refold.looks;
		CREATE FUNCTION refold.look() RETURNS TABLE (transaction text, standby boolean) LANGUAGE plpgsql AS $$ BEGIN
			PERFORM nextval('refold.looks'), pg_advisory_xact_lock_shared(1);
			RETURN QUERY SELECT h.name, false FROM (SELECT) AS one LEFT JOIN refold.held h ON true;
		END $$`, pgx.QueryExecModeSimpleProtocol)
	db.SetLook("SELECT * FROM refold.look()")
	return db, conn, func() (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refold.looks").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// Deletions that wait share a look that begins after their marks.
func TestDeletionsShareLooks(t *testing.T) {
	t.Parallel()
	db, conn, looks := lookGate(t)
	execute(t, conn, "SELECT pg_advisory_lock(1)")
	const deletions = 10
	var running sync.WaitGroup
	for n := range deletions {
		id := fmt.Sprint(n)
		store(t, db.TestJournal(), eventsOf(id, 0, 3))
		running.Go(func() {
			if err := db.TestJournal().DeleteTo(t.Context(), id, 2); err != nil {
				t.Error(err)
			}
		})
		until(t, "the first look", func() bool { return looks() == 1 })
	}
	until(t, "all deletions to wait", func() bool { return db.WaitingDeletions() == deletions })
	execute(t, conn, "SELECT pg_advisory_unlock(1)")
	running.Wait()
	if n := looks(); n != 2 {
		t.Errorf("%d deletions made %d looks, want one for the first and one for the others", deletions, n)
	}
}

// A deletion waits for the appends of its first look only.
func TestDeletionWaitsForFirstLook(t *testing.T) {
	t.Parallel()
	db, conn, looks := lookGate(t)
	store(t, db.TestJournal(), eventsOf("a", 0, 3))
	execute(t, conn, "INSERT INTO refold.held VALUES ('old')")
	done := make(chan error, 1)
	go func() { done <- db.TestJournal().DeleteTo(t.Context(), "a", 2) }()
	until(t, "three looks", func() bool { return looks() >= 3 })
	select {
	case err := <-done:
		t.Fatalf("the deletion returned %v before the append ended", err)
	default:
	}
	execute(t, conn, "UPDATE refold.held SET name = 'new'")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A deletion whose mark is removed while it waits deletes nothing.
func TestDeletionWithoutMark(t *testing.T) {
	t.Parallel()
	db, conn, looks := lookGate(t)
	j := db.TestJournal()
	store(t, j, eventsOf("a", 0, 3))
	execute(t, conn, "INSERT INTO refold.held VALUES ('append')")
	done := make(chan error, 1)
	go func() { done <- j.DeleteTo(t.Context(), "a", 3) }()
	until(t, "a look", func() bool { return looks() >= 1 })
	execute(t, conn, "DELETE FROM refold.deletions; DELETE FROM refold.held", pgx.QueryExecModeSimpleProtocol)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "mark") {
		t.Errorf("deletion without its mark: %v, want an error", err)
	}
	if highest, err := j.HighestSequenceNr(t.Context(), "a"); err != nil || highest != 3 {
		t.Errorf("highest number %d, error %v, want 3", highest, err)
	}
	if err := j.DeleteTo(t.Context(), "a", 3); err != nil {
		t.Errorf("the same deletion again: %v", err)
	}
}

// The error of a look is that of all deletions that wait for it. They delete nothing.
func TestFailedLook(t *testing.T) {
	t.Parallel()
	db, conn, _ := lookGate(t)
	store(t, db.TestJournal(), eventsOf("a", 0, 3))
	execute(t, conn, "DROP TABLE refold.held")
	if err := db.TestJournal().DeleteTo(t.Context(), "a", 2); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("DeleteTo: %v, want ErrSchema", err)
	}
	for e, err := range db.TestJournal().Replay(t.Context(), "a", 1, 1) {
		if e.SequenceNr != 1 || err != nil {
			t.Errorf("the first event is %d, %v, want 1", e.SequenceNr, err)
		}
		return
	}
	t.Error("events were deleted after a failed look")
}

// A deletion whose context ends, or whose journal is closed, ends its look.
func TestDeletionLeaves(t *testing.T) {
	t.Parallel()
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			t.Parallel()
			db, conn, looks := lookGate(t)
			store(t, db.TestJournal(), eventsOf("a", 0, 3))
			execute(t, conn, "SELECT pg_advisory_lock(1)")
			cause := errors.New("enough")
			ctx, leave := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- db.TestJournal().DeleteTo(ctx, "a", 2) }()
			until(t, "a look", func() bool { return looks() == 1 })
			want := cause
			if closes {
				want = journal.ErrClosed
				if err := db.TestJournal().Close(); err != nil {
					t.Error(err)
				}
			} else {
				leave(cause)
			}
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("DeleteTo: %v, want %v", err, want)
			}
			db.AwaitLooks() // the look waits for a lock that this test holds
			leave(nil)
		})
	}
}

// A look ends with the last deletion that it serves. A later deletion does not wait for it.
func TestLookOfLeftDeletionEnds(t *testing.T) {
	t.Parallel()
	db, conn, looks := lookGate(t)
	store(t, db.TestJournal(), eventsOf("a", 0, 3), eventsOf("b", 0, 3))
	execute(t, conn, "SELECT pg_advisory_lock(1)")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left, done := make(chan error, 1), make(chan error, 1)
	go func() { left <- db.TestJournal().DeleteTo(ctx, "a", 2) }()
	until(t, "a look", func() bool { return looks() == 1 })
	go func() { done <- db.TestJournal().DeleteTo(t.Context(), "b", 2) }()
	until(t, "the second deletion", func() bool { return db.WaitingDeletions() == 2 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the first deletion: %v, want the end of its context", err)
	}
	until(t, "the look of the second deletion", func() bool { return looks() == 2 })
	execute(t, conn, "SELECT pg_advisory_unlock(1)")
	if err := <-done; err != nil {
		t.Errorf("the second deletion: %v", err)
	}
}

// A look that hangs fails after its time limit, and deletes nothing.
func TestLookTimeout(t *testing.T) {
	t.Parallel()
	db, conn, _ := lookGate(t)
	store(t, db.TestJournal(), eventsOf("a", 0, 3))
	execute(t, conn, "SELECT pg_advisory_lock(1)")
	db.LimitLooks(time.Millisecond)
	if err := db.TestJournal().DeleteTo(t.Context(), "a", 2); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("DeleteTo: %v, want ErrUnavailable", err)
	}
	db.LimitLooks(time.Minute)
	execute(t, conn, "SELECT pg_advisory_unlock(1)")
	if err := db.TestJournal().DeleteTo(t.Context(), "a", 3); err != nil {
		t.Errorf("the next deletion: %v", err)
	}
}

// A deletion whose journal is closed after its mark starts no look, because Close has waited for them.
func TestNoLookAfterClose(t *testing.T) {
	t.Parallel()
	db := openStore(t, pgtest.DSN(t), postgres.Config{})
	j := db.TestJournal()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.WaitForAppends(t.Context()); !errors.Is(err, journal.ErrClosed) || db.Looked() {
		t.Errorf("the deletion returned %v, looked %v, want ErrClosed and no look", err, db.Looked())
	}
}
