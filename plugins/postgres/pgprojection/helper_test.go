// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

// paid is the event of these tests.
type paid struct{ N int64 }

func events() *codec.Registry { return codec.Types(codec.Name[paid]("paid")) }

// database returns the address of a database with the schema and a read model.
func database(t *testing.T) string {
	t.Helper()
	dsn := pgtest.DSN(t)
	prepare(t, dsn)
	return dsn
}

// createSums creates the table that handler updates.
const createSums = `CREATE TABLE sums (box text PRIMARY KEY, n bigint NOT NULL, events bigint NOT NULL)`

func prepare(t *testing.T, dsn string) {
	t.Helper()
	if _, err := postgres.Migrate(t.Context(), dsn, postgres.Config{}); err != nil {
		t.Fatal(err)
	}
	exec(t, connect(t, dsn, nil), createSums,
		`CREATE TABLE keys (key text PRIMARY KEY)`,
		`CREATE TABLE checked (n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
}

// connect opens a pool after the test has changed its configuration.
func connect(t *testing.T, dsn string, change func(c *pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 4
	if change != nil {
		change(c)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(tb testing.TB, pool *pgxpool.Pool, statements ...string) {
	tb.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(tb.Context(), sql); err != nil {
			tb.Fatal(err)
		}
	}
}

// fill appends payments to a number of boxes and returns their sums.
func fill(t *testing.T, j journal.Journal, boxes, count int) map[string]int64 {
	t.Helper()
	sums := make(map[string]int64)
	var writes []journal.Write
	for i := range count {
		id, n := fmt.Sprintf("box|%d", i%boxes), int64(i+1)
		nr, err := j.HighestSequenceNr(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		nr += uint64(i / boxes)
		manifest, payload, err := events().Encode(paid{N: n})
		if err != nil {
			t.Fatal(err)
		}
		writes = append(writes, journal.Write{ID: id, Writer: "w", Expect: nr, Events: []journal.Event{{SequenceNr: nr + 1, Time: time.Now().UTC().Truncate(time.Microsecond), Manifest: manifest, Payload: payload}}})
		sums[id] += n
	}
	if errs := j.Append(t.Context(), writes); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	return sums
}

// handler adds the amounts of batches to the table.
func handler(pool *pgxpool.Pool, batch int) projection.ExactlyOnce[paid, pgx.Tx] {
	return projection.ExactlyOnce[paid, pgx.Tx]{
		Store: newStore(pool), Batch: batch, Handle: addUp,
		Clear: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "DELETE FROM sums")
			return err
		},
	}
}

func addUp(ctx context.Context, tx pgx.Tx, events []projection.Envelope[paid]) error {
	ns, counts := make(map[string]int64), make(map[string]int64)
	for _, e := range events {
		ns[e.ID] += e.Event.N
		counts[e.ID]++
	}
	boxes, sums, numbers := make([]string, 0, len(ns)), make([]int64, 0, len(ns)), make([]int64, 0, len(ns))
	for box, n := range ns {
		boxes, sums, numbers = append(boxes, box), append(sums, n), append(numbers, counts[box])
	}
	_, err := tx.Exec(ctx, `INSERT INTO sums SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) u ORDER BY 1
		ON CONFLICT (box) DO UPDATE SET n = sums.n + excluded.n, events = sums.events + excluded.events`, boxes, sums, numbers)
	return err
}

func config(j journal.Journal, h projection.Handler[paid]) projection.Config[paid] {
	return projection.Config[paid]{
		Name: "sums", Journal: j, Criteria: journal.Criteria{Types: []string{"box"}}, Events: events(), Handler: h,
		MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
	}
}

func create(tb testing.TB, cfg projection.Config[paid]) *projection.Projection[paid] {
	tb.Helper()
	p, err := projection.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func wantSums(t *testing.T, pool *pgxpool.Pool, want map[string]int64) {
	t.Helper()
	rows, err := pool.Query(context.Background(), "SELECT box, n FROM sums")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	var box string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&box, &n}, func() error { got[box] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the read model is %v, want %v", got, want)
	}
}

func newJournal(t *testing.T) *inmem.Journal {
	t.Helper()
	j := inmem.NewJournal()
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// newStore returns a store on the pool of a test.
func newStore(pool *pgxpool.Pool) *pgprojection.Store {
	store, err := pgprojection.NewStore(pool, pgprojection.Config{})
	if err != nil {
		panic(err)
	}
	return store
}
