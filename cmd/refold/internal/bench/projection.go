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
func project(ctx context.Context, b *run) (results []Result, err error) {
	n := b.scaled(200_000)/backlogIDs*backlogIDs + backlogIDs
	p := newNotes()
	s, err := b.openPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b.progress("writing %d events", n)
	if err = fillMany(ctx, s.journal, backlogIDs, n/backlogIDs, p); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, b.dsn)
	if err != nil {
		return nil, errors.New("bench: connect to the server for the read model") // the cause may contain the password
	}
	defer pool.Close()
	sums := pgx.Identifier{s.schema, "sums"}.Sanitize()
	if _, err = pool.Exec(ctx, "CREATE TABLE "+sums+" (id text PRIMARY KEY, n bigint NOT NULL, events bigint NOT NULL)"); err != nil {
		return nil, err
	}
	if _, err = pool.Exec(ctx, "VACUUM ANALYZE "+pgx.Identifier{s.schema, "events"}.Sanitize()); err != nil {
		return nil, err
	}
	var limits, values []float64
	err = b.rawBacklog(ctx, n, p, func(work func(sums string) (float64, error)) error {
		round := 0
		limits, values, err = b.alternate(
			func() (float64, error) {
				return b.summed(ctx, pool, sums, n, func() (float64, error) { return work(sums) })
			},
			func() (float64, error) {
				round++
				return b.summed(ctx, pool, sums, n, func() (float64, error) {
					return catchUp(ctx, s, pool, fmt.Sprintf("sums-%d", round), sums, n)
				})
			})
		return err
	})
	if err != nil {
		return nil, err
	}
	limit, value := median(limits), median(values)
	return []Result{Result{
		Value: value, Unit: "events/s", Limit: limit, Ratio: value / limit, Goal: 0.5, Better: higher,
		Settings: fmt.Sprintf("exactly once, a backlog of %d events of %d entities in batches of %d, 1 worker, median of %d", n, backlogIDs, backlogPage, len(values)),
	}.judge()}, nil
}

// fillMany appends the same number of events to many counters.
func fillMany(ctx context.Context, j journal.Journal, ids, each int, p notes) error {
	names := codec.Types(codec.Name[added]("added"))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const step = 10 // events per write
	for done := 0; done < each; {
		count := min(step, each-done)
		writes := make([]journal.Write, ids)
		for id := range writes {
			w := journal.Write{ID: fmt.Sprintf("counter|%d", id), Writer: "bench", Expect: uint64(done)}
			for i := range count {
				manifest, payload, err := names.Encode(added{N: 1, Note: p.bytes(id*each+done+i, noteSize)})
				if err != nil {
					return err
				}
				w.Events = append(w.Events, journal.Event{SequenceNr: uint64(done + i + 1), Time: at, Manifest: manifest, Payload: payload})
			}
			writes[id] = w
		}
		if slots := j.Append(ctx, writes); slots != nil {
			return errors.Join(slots...)
		}
		done += count
	}
	return nil
}

// summed empties the read model, fills it, and checks it.
func (b *run) summed(ctx context.Context, pool *pgxpool.Pool, sums string, want int, work func() (float64, error)) (rate float64, err error) {
	if _, err = pool.Exec(ctx, "TRUNCATE "+sums); err != nil {
		return 0, err
	}
	if rate, err = work(); err != nil {
		return 0, err
	}
	var n, events int
	if err = pool.QueryRow(ctx, "SELECT sum(n), sum(events) FROM "+sums).Scan(&n, &events); err != nil {
		return 0, err
	}
	if n != want || events != want {
		return 0, fmt.Errorf("the read model holds %d from %d events, want %d", n, events, want)
	}
	return rate, nil
}

// catchUp runs a new projection until it has handled all events.
func catchUp(ctx context.Context, s *database, pool *pgxpool.Pool, name, sums string, n int) (float64, error) {
	store, err := pgprojection.NewStore(pool, pgprojection.Config{Schema: s.schema})
	if err != nil {
		return 0, err
	}
	totals, err := projection.New(projection.Config[event]{
		Name: name, Journal: s.journal, Criteria: journal.Criteria{Type: "counter"}, Events: codec.Types(codec.Name[added]("added")),
		Handler: projection.ExactlyOnce[event, pgx.Tx]{
			Store: store, Batch: backlogPage,
			Handle: func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[event]) error {
				by := newTotals()
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

func newTotals() *totals { return &totals{at: make(map[string]int)} }

func (t *totals) add(id string, n int64) {
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
func (b *run) rawBacklog(ctx context.Context, n int, p notes, measure func(work func(sums string) (float64, error)) error) error {
	return b.rawTable(ctx, false, func(table string) error {
		return b.rawConn(ctx, func(conn *pgx.Conn) error {
			schema, name := splitTable(table)
			_, err := conn.CopyFrom(ctx, pgx.Identifier{schema, name}, []string{"id", "seq_nr", "at", "payload"},
				pgx.CopyFromSlice(n, func(i int) ([]any, error) {
					value, err := msgpack.Marshal(added{N: 1, Note: p.bytes(i, noteSize)})
					return []any{fmt.Sprintf("counter|%d", i%backlogIDs), int64(i/backlogIDs + 1), time.Unix(int64(i), 0), value}, err
				}))
			if err == nil {
				_, err = conn.Exec(ctx, "VACUUM ANALYZE "+table)
			}
			if err == nil {
				_, err = conn.Exec(ctx, "CREATE TABLE "+pgx.Identifier{schema, "position"}.Sanitize()+" (id text NOT NULL, seq_nr bigint NOT NULL)")
			}
			if err != nil {
				return err
			}
			return measure(func(sums string) (float64, error) { return workOff(ctx, conn, table, schema, sums, n) })
		})
	})
}

// workOff reads pages of raw rows and adds them up.
func workOff(ctx context.Context, conn *pgx.Conn, table, schema, sums string, n int) (float64, error) {
	position := pgx.Identifier{schema, "position"}.Sanitize()
	if _, err := conn.Exec(ctx, "TRUNCATE "+position); err != nil {
		return 0, err
	}
	if _, err := conn.Exec(ctx, "INSERT INTO "+position+" VALUES ('', 0)"); err != nil {
		return 0, err
	}
	began := time.Now()
	id, nr := "", int64(0)
	for {
		by := newTotals()
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

// live measures the delay from the commit of an event to its delivery by a live query of another
// handle, like in another process, while 10,000 events per second are written.
func live(ctx context.Context, b *run) (results []Result, err error) {
	var delays []time.Duration
	for i := range max(1, b.settings.Rounds) {
		b.progress("round %d of %d", i+1, b.settings.Rounds)
		some, err := b.liveRound(ctx)
		if err != nil {
			return nil, err
		}
		delays = append(delays, some...)
	}
	p50, p99 := percentile(delays, 0.5), percentile(delays, 0.99)
	return []Result{Result{
		Value: ms(p99), Unit: "ms p99", Ratio: ms(p99), Goal: 100, Better: lower,
		Settings: fmt.Sprintf("%d events a second in appends of %d, from commit to delivery in another handle", int(liveIDs*time.Second/livePeriod), liveIDs),
		Detail:   fmt.Sprintf("p50 %v, %d events", p50.Round(10*time.Microsecond), len(delays)),
	}.judge()}, nil
}

// liveRound returns the delays of one run.
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
		delay := time.Duration(0) // it arrived before its append returned
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
