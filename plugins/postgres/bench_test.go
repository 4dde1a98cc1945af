// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// workload generates batches of writes. Each write has one event. The IDs belong to this workload
// only.
type workload struct {
	name   string
	next   []uint64 // the last sequence number, for each ID
	writes []journal.Write
	events []journal.Event
}

func newWorkload(name string, ids, size int) *workload {
	return &workload{name: name, next: make([]uint64, ids), writes: make([]journal.Write, size), events: make([]journal.Event, size)}
}

var benchPayload = []byte(strings.Repeat("p", 200))

// batch returns the n-th batch.
func (l *workload) batch(n int) []journal.Write {
	for i := range l.writes {
		k := (n*len(l.writes) + i) % len(l.next)
		l.next[k]++
		l.events[i] = journal.Event{SequenceNr: l.next[k], Time: time.UnixMicro(1_700_000_000_000_000).UTC(), Manifest: "deposited", Payload: benchPayload}
		l.writes[i] = journal.Write{ID: fmt.Sprintf("%s|%d", l.name, k), Writer: "node-1:2552/1234567890", Expect: l.next[k] - 1, Events: l.events[i : i+1]}
	}
	return l.writes
}

// inParallel runs f for b.N batches on several goroutines and reports events per second.
func inParallel(b *testing.B, flights, size int, f func(flight, n int) error) {
	b.Helper()
	b.ResetTimer()
	var group sync.WaitGroup
	for flight := range flights {
		group.Go(func() {
			for n := flight; n < b.N; n += flights {
				if err := f(flight, n/flights); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkAppend appends batches, several at a time.
func BenchmarkAppend(b *testing.B) {
	for _, cached := range []bool{false, true} {
		for _, c := range []struct{ size, flights int }{{1, 1}, {10, 1}, {100, 1}, {1000, 1}, {100, 4}, {300, 2}, {300, 3}, {300, 4}, {300, 6}, {500, 2}, {1000, 2}} {
			b.Run(fmt.Sprintf("cached=%v/%dx%d", cached, c.flights, c.size), func(b *testing.B) {
				j := openStore(b, pgtest.DSN(b), postgres.Config{MaxConns: 8, CachedStatements: cached, DisableNotify: true}).TestJournal()
				loads := make([]*workload, c.flights)
				for i := range loads {
					loads[i] = newWorkload(fmt.Sprint("account-", i), 1000, c.size)
				}
				inParallel(b, c.flights, c.size, func(flight, n int) error {
					if errs := j.Append(context.Background(), loads[flight].batch(n)); errs != nil {
						return fmt.Errorf("append: %v", errs)
					}
					return nil
				})
			})
		}
	}
}

// BenchmarkAppendHot appends batches to one ID.
func BenchmarkAppendHot(b *testing.B) {
	j := openStore(b, pgtest.DSN(b), postgres.Config{DisableNotify: true}).TestJournal()
	load := newWorkload("account", 1, 128)
	inParallel(b, 1, 128, func(_, n int) error {
		if errs := j.Append(context.Background(), load.batch(n)); errs != nil {
			return fmt.Errorf("append: %v", errs)
		}
		return nil
	})
}

// BenchmarkRaw inserts with the driver alone into a table of four columns and one index. It is the
// reference for the other benchmarks.
func BenchmarkRaw(b *testing.B) {
	for _, c := range []struct {
		size, flights int
		copies        bool
	}{{1, 1, false}, {100, 1, false}, {1000, 1, false}, {1000, 2, false}, {1000, 1, true}, {1000, 2, true}, {1000, 4, true}} {
		way := "insert"
		if c.copies {
			way = "copy"
		}
		b.Run(fmt.Sprintf("%s/%dx%d", way, c.flights, c.size), func(b *testing.B) {
			dsn := pgtest.DSN(b)
			execute(b, connect(b, dsn), `CREATE TABLE raw (id text COLLATE "C" NOT NULL, seq_nr bigint NOT NULL, at timestamptz NOT NULL, payload bytea NOT NULL, PRIMARY KEY (id, seq_nr))`)
			conns, loads := make([]*pgx.Conn, c.flights), make([]*workload, c.flights)
			for i := range conns {
				conns[i], loads[i] = connect(b, dsn), newWorkload(fmt.Sprint("account-", i), 1000, c.size)
			}
			insert := rawInsert(c.size)
			inParallel(b, c.flights, c.size, func(flight, n int) (err error) {
				writes := loads[flight].batch(n)
				row := func(i int) ([]any, error) {
					e := &writes[i].Events[0]
					return []any{writes[i].ID, int64(e.SequenceNr), e.Time, e.Payload}, nil
				}
				if c.copies {
					_, err = conns[flight].CopyFrom(context.Background(), pgx.Identifier{"raw"}, []string{"id", "seq_nr", "at", "payload"}, pgx.CopyFromSlice(c.size, row))
					return err
				}
				var args []any
				for i := range writes {
					values, _ := row(i)
					args = append(args, values...)
				}
				_, err = conns[flight].Exec(context.Background(), insert, args...)
				return err
			})
		})
	}
}

// rawInsert returns an insert of a number of rows.
func rawInsert(rows int) string {
	var sql strings.Builder
	sql.WriteString("INSERT INTO raw (id, seq_nr, at, payload) VALUES ")
	for i := range rows {
		if i > 0 {
			sql.WriteByte(',')
		}
		fmt.Fprintf(&sql, "($%d,$%d,$%d,$%d)", 4*i+1, 4*i+2, 4*i+3, 4*i+4)
	}
	return sql.String()
}

// BenchmarkReplay reads 100,000 events of one ID, through the journal and with the driver alone.
func BenchmarkReplay(b *testing.B) {
	const events = 100_000
	dsn := pgtest.DSN(b)
	j := openStore(b, dsn, postgres.Config{DisableNotify: true}).TestJournal()
	load := newWorkload("account", 1, 1000)
	for n := range events / 1000 {
		store(b, j, load.batch(n)...)
	}
	conn := connect(b, dsn)
	execute(b, conn, "VACUUM ANALYZE refold.events")
	measure := func(name string, read func() (int, error)) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if n, err := read(); n != events || err != nil {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.N*events)/b.Elapsed().Seconds(), "events/s")
		})
	}
	measure("journal", func() (n int, err error) {
		for _, err := range j.Replay(context.Background(), "account|0", 1, journal.MaxSequenceNr) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	})
	measure("raw", func() (n int, err error) {
		rows, err := conn.Query(context.Background(), "SELECT seq_nr, at, writer, manifest, payload FROM refold.events WHERE id = $1 ORDER BY seq_nr", "account|0")
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		for rows.Next() {
			var e journal.Event
			if err := rows.Scan(&e.SequenceNr, &e.Time, &e.Writer, &e.Manifest, &e.Payload); err != nil {
				return n, err
			}
			n++
		}
		return n, rows.Err()
	})
}

// BenchmarkRecoveries recovers 5,000 entities of 10 events, for 200 callers.
func BenchmarkRecoveries(b *testing.B) {
	const entities, callers = 5000, 200
	dsn := pgtest.DSN(b)
	ask := func(message func(ctx context.Context, to eventsourcing.Ref[ledger]) error) {
		r := openReplica(b, dsn, eventsourcing.HostOptions{}, eventsourcing.Snapshots[ledger, entry]{})
		b.StartTimer()
		var running sync.WaitGroup
		for c := range callers {
			running.Go(func() {
				for n := c; n < entities; n += callers {
					if err := message(context.Background(), r.ledgers.Ref(fmt.Sprint(n))); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		running.Wait()
		b.StopTimer()
		if err := r.rt.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	ask(func(ctx context.Context, to eventsourcing.Ref[ledger]) error {
		_, err := eventsourcing.Ask(ctx, to, post{Count: 10})
		return err
	})
	execute(b, connect(b, dsn), "VACUUM ANALYZE refold.events")
	b.ResetTimer()
	for range b.N {
		ask(func(ctx context.Context, to eventsourcing.Ref[ledger]) error {
			_, err := eventsourcing.Ask(ctx, to, list{})
			return err
		})
	}
	b.ReportMetric(float64(b.N*entities)/b.Elapsed().Seconds(), "entities/s")
}
