// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

const (
	backlogIDs  = 1000
	backlogPage = 1000 // events per page and transaction
)

// project measures an exactly-once projection with a backlog. The limit is a hand-written loop that
// reads the same events in batches, decodes them, adds them up in the same table and stores its
// position, in one transaction per batch.
func project(ctx context.Context, b *run) ([]Result, error) {
	n := b.scaled(200_000, 0)/backlogIDs*backlogIDs + backlogIDs
	ids := make([]string, backlogIDs)
	for i := range ids {
		ids[i] = fmt.Sprintf("counter|%d", i)
	}
	var c compared
	err := b.opened(ctx, func(s *database) error {
		b.progress("writing %d events", n)
		if err := fill(ctx, s.journal, n/backlogIDs, 10, ids...); err != nil {
			return err
		}
		pool, err := pgxpool.New(ctx, b.dsn)
		if err != nil {
			return errors.New("bench: connect to the server for the read model") // the cause may contain the password
		}
		defer pool.Close()
		sums := pgx.Identifier{s.schema, "sums"}.Sanitize()
		for _, statement := range []string{
			"CREATE TABLE " + sums + " (id text PRIMARY KEY, n bigint NOT NULL, events bigint NOT NULL)",
			"VACUUM ANALYZE " + pgx.Identifier{s.schema, "events"}.Sanitize(),
		} {
			if _, err = pool.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return b.rawBacklog(ctx, n, ids, func(work func(sums string) (float64, error)) (err error) {
			round := 0
			c, err = b.compare(
				summed(ctx, pool, sums, n, func() (float64, error) { return work(sums) }),
				summed(ctx, pool, sums, n, func() (float64, error) {
					round++
					return catchUp(ctx, s, pool, fmt.Sprintf("sums-%d", round), sums, n)
				}))
			return err
		})
	})
	return []Result{c.result(Result{
		Unit: "events/s", Goal: 0.5, Better: higher,
		Settings: fmt.Sprintf("exactly once, a backlog of %d events of %d entities in batches of %d, 1 worker, median of %d", n, backlogIDs, backlogPage, b.settings.Rounds),
	})}, err
}

// summed returns a function that empties the read model, calls work to fill it, and checks the
// sums.
func summed(ctx context.Context, pool *pgxpool.Pool, sums string, want int, work func() (float64, error)) func() (float64, error) {
	return func() (float64, error) {
		if _, err := pool.Exec(ctx, "TRUNCATE "+sums); err != nil {
			return 0, err
		}
		rate, err := work()
		if err != nil {
			return 0, err
		}
		var n, events int
		err = pool.QueryRow(ctx, "SELECT sum(n), sum(events) FROM "+sums).Scan(&n, &events)
		if err == nil && (n != want || events != want) {
			err = fmt.Errorf("the read model holds %d from %d events, want %d", n, events, want)
		}
		return rate, err
	}
}

func catchUp(ctx context.Context, s *database, pool *pgxpool.Pool, name, sums string, n int) (float64, error) {
	store, err := pgprojection.NewStore(pool, pgprojection.Config{Schema: s.schema})
	if err != nil {
		return 0, err
	}
	totals, err := projection.New(projection.Config[event]{
		Name: name, Journal: s.journal, Criteria: journal.Criteria{Types: []string{"counter"}}, Events: codec.Types(codec.Name[added]("added")),
		Handler: projection.ExactlyOnce[event, pgx.Tx]{
			Store: store, Batch: backlogPage,
			Handle: func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[event]) error {
				var by totals
				for i := range events {
					if e, ok := events[i].Event.(added); ok {
						by.add(events[i].ID, e.N)
					}
				}
				return by.store(ctx, tx, sums)
			},
		},
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := totals.CatchUp(ctx); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// totals are the additions of a batch to the read model.
type totals struct {
	at     map[string]int
	ids    []string
	ns     []int64
	events []int64
}

func (t *totals) add(id string, n int64) {
	if t.at == nil {
		t.at = map[string]int{}
	}
	i, found := t.at[id]
	if !found {
		i = len(t.ids)
		t.at[id] = i
		t.ids, t.ns, t.events = append(t.ids, id), append(t.ns, 0), append(t.events, 0)
	}
	t.ns[i] += n
	t.events[i]++
}

func (t *totals) store(ctx context.Context, tx pgx.Tx, sums string) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+sums+` AS s SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
		ON CONFLICT (id) DO UPDATE SET n = s.n + excluded.n, events = s.events + excluded.events`, t.ids, t.ns, t.events)
	return err
}

// rawBacklog fills a raw table with the same events and measures a function that handles them.
func (b *run) rawBacklog(ctx context.Context, n int, ids []string, measure func(work func(sums string) (float64, error)) error) error {
	key := func(i int) (string, int64) { return ids[i%len(ids)], int64(i/len(ids) + 1) }
	return b.filledTable(ctx, n, key, func(conn *pgx.Conn, table string) error {
		schema, _ := splitTable(table)
		position := pgx.Identifier{schema, "position"}.Sanitize()
		if _, err := conn.Exec(ctx, "CREATE TABLE "+position+" (id text NOT NULL, seq_nr bigint NOT NULL)"); err != nil {
			return err
		}
		return measure(func(sums string) (float64, error) { return workOff(ctx, conn, table, position, sums, n) })
	})
}

func workOff(ctx context.Context, conn *pgx.Conn, table, position, sums string, n int) (float64, error) {
	if _, err := conn.Exec(ctx, "TRUNCATE "+position+"; INSERT INTO "+position+" VALUES ('', 0)"); err != nil {
		return 0, err
	}
	began := time.Now()
	id, nr := "", int64(0)
	for {
		var by totals
		rows, err := conn.Query(ctx, "SELECT id, seq_nr, at, payload FROM "+table+" WHERE (id, seq_nr) > ($1, $2) ORDER BY id, seq_nr LIMIT $3", id, nr, backlogPage)
		if err != nil {
			return 0, err
		}
		count := 0
		for rows.Next() {
			var at time.Time
			var payload []byte
			var e added
			if err = errors.Join(rows.Scan(&id, &nr, &at, &payload), msgpack.Unmarshal(payload, &e)); err != nil {
				rows.Close()
				return 0, err
			}
			by.add(id, e.N)
			count++
		}
		if err = rows.Err(); err != nil {
			return 0, err
		}
		if count == 0 {
			return float64(n) / time.Since(began).Seconds(), nil
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, failed := tx.Exec(ctx, "UPDATE "+position+" SET id = $1, seq_nr = $2", id, nr)
			return errors.Join(failed, by.store(ctx, tx, sums))
		})
		if err != nil {
			return 0, err
		}
	}
}

const (
	liveIDs    = 100                   // events per append, each of another ID
	livePeriod = 10 * time.Millisecond // interval between two appends
)

// live measures the delay from the commit of an event to its delivery by a live query, while 10,000
// events per second are written. The query uses a second journal handle, like another process.
func live(ctx context.Context, b *run) ([]Result, error) {
	var delays []time.Duration
	err := b.rounds(func() error {
		some, err := b.liveRound(ctx)
		delays = append(delays, some...)
		return err
	})
	return []Result{atMost(ms(percentile(delays, 0.99)), "ms p99", 100,
		fmt.Sprintf("%d events a second in appends of %d, from commit to delivery in another handle", int(liveIDs*time.Second/livePeriod), liveIDs),
		fmt.Sprintf("p50 %v, %d events", percentile(delays, 0.5).Round(10*time.Microsecond), len(delays)))}, err
}

func (b *run) liveRound(ctx context.Context) (delays []time.Duration, err error) {
	s, err := b.openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	other, err := postgres.Open(ctx, b.dsn, postgres.Config{Schema: s.schema})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()

	appends := max(10, int(b.settings.Length/livePeriod))
	committed := make([]atomic.Int64, appends) // nanoseconds since start
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := writePaced(ctx, s.journal, start, committed); err != nil {
			cancel(err)
		}
	}()
	defer func() { <-written }()
	for e, err := range journal.Live(ctx, other.Journal(), journal.Criteria{}, "") {
		if err != nil {
			cancel(err)
			return nil, err
		}
		n := binary.BigEndian.Uint64(e.Payload)
		if n >= uint64(len(committed)) {
			return nil, fmt.Errorf("wrong event %d of %q", e.SequenceNr, e.ID)
		}
		delay := time.Duration(0) // the event arrived before its append returned
		if at := committed[n].Load(); at > 0 {
			delay = max(0, time.Since(start)-time.Duration(at))
		}
		if delays = append(delays, delay); len(delays) == appends*liveIDs {
			break
		}
	}
	return delays, nil
}

// writePaced appends at a steady rate and records when each append returned.
func writePaced(ctx context.Context, j journal.Journal, start time.Time, committed []atomic.Int64) error {
	ticks := time.NewTicker(livePeriod)
	defer ticks.Stop()
	for n := range committed {
		payload := make([]byte, 200)
		binary.BigEndian.PutUint64(payload, uint64(n))
		writes := make([]journal.Write, liveIDs)
		for i := range writes {
			writes[i] = journal.Write{
				ID: fmt.Sprintf("counter|%d", i), Writer: "bench", Expect: uint64(n),
				Events: []journal.Event{{SequenceNr: uint64(n) + 1, Time: time.Now().UTC().Truncate(time.Microsecond), Manifest: "added", Payload: payload}},
			}
		}
		if slots := j.Append(ctx, writes); slots != nil {
			return errors.Join(slots...)
		}
		committed[n].Store(int64(time.Since(start)))
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
