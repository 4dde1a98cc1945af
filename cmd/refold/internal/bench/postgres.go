// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/testkit/pgserver"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
)

// rawWay is one way to insert events without Refold.
type rawWay struct {
	name string
	size int // events per statement
	conn int // connections
	copy bool
}

// bulkWays returns the alternatives for inserting a batch. The fastest one is the limit.
func bulkWays() []rawWay {
	var ways []rawWay
	for _, conns := range []int{1, 2, 4} {
		ways = append(ways,
			rawWay{fmt.Sprintf("insert of 100 on %d", conns), 100, conns, false},
			rawWay{fmt.Sprintf("insert of 1000 on %d", conns), 1000, conns, false},
			rawWay{fmt.Sprintf("COPY of 1000 on %d", conns), 1000, conns, true})
	}
	return ways
}

// rawBulk gives each of bulkWays an equal share of the time and returns the best rate and its name.
func (b *run) rawBulk(ctx context.Context, ordered bool) (best float64, name string, err error) {
	for _, way := range bulkWays() {
		_, rate, err := b.rawInserts(ctx, way, ordered, max(b.settings.Length/4, 10*time.Millisecond))
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w", way.name, err)
		}
		if rate > best {
			best, name = rate, way.name
		}
	}
	return best, name, nil
}

// rawInserts inserts events for a time, at least once per connection. It returns the duration of
// each statement and the events per second.
func (b *run) rawInserts(ctx context.Context, way rawWay, ordered bool, length time.Duration) (samples []time.Duration, rate float64, err error) {
	err = b.rawTable(ctx, ordered, func(table string) (err error) {
		conns := make([]*pgx.Conn, way.conn)
		defer func() {
			for _, conn := range conns {
				if conn != nil {
					err = errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
				}
			}
		}()
		for i := range conns {
			if conns[i], err = b.connect(ctx); err != nil {
				return err
			}
		}
		took := make([][]time.Duration, way.conn)
		start := time.Now()
		err = inParallel(way.conn, way.conn, func(i int) (err error) {
			for more := true; more; more = time.Since(start) < length {
				began := time.Now()
				if err = rawInsert(ctx, conns[i], table, way, i, way.size*len(took[i])); err != nil {
					return err
				}
				took[i] = append(took[i], time.Since(began))
			}
			return nil
		})
		samples = slices.Concat(took...)
		rate = float64(way.size*len(samples)) / time.Since(start).Seconds()
		return err
	})
	return samples, rate, err
}

// rawInsert inserts the events with the numbers done+1 to done+size of a connection, over 1,000
// IDs, in one transaction.
func rawInsert(ctx context.Context, conn *pgx.Conn, table string, way rawWay, worker, done int) error {
	ids, nrs := make([]string, way.size), make([]int64, way.size)
	times, payloads := make([]time.Time, way.size), make([][]byte, way.size)
	now := time.Now()
	for i := range way.size {
		n := done + i + 1
		ids[i] = fmt.Sprintf("counter|%d-%d", worker, n%1000)
		nrs[i], times[i], payloads[i] = int64(n), now, noteOf(n, 200)
	}
	if way.size == 1 {
		_, err := conn.Exec(ctx, "INSERT INTO "+table+" (id, seq_nr, at, payload) VALUES ($1, $2, $3, $4)", ids[0], nrs[0], times[0], payloads[0])
		return err
	}
	if way.copy {
		return copyRows(ctx, conn, table, way.size, func(i int) ([]any, error) { return []any{ids[i], nrs[i], times[i], payloads[i]}, nil })
	}
	_, err := conn.Exec(ctx, "INSERT INTO "+table+" (id, seq_nr, at, payload) SELECT * FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::bytea[])", ids, nrs, times, payloads)
	return err
}

// splitTable reverts the quoting of rawTable.
func splitTable(table string) (schema, name string) {
	return table[1 : len(table)-len(`".raw`)], "raw"
}

// filledTable runs f with a raw table of n events, whose IDs and sequence numbers key returns.
func (b *run) filledTable(ctx context.Context, n int, key func(i int) (string, int64), f func(conn *pgx.Conn, table string) error) error {
	return b.rawTable(ctx, false, func(table string) error {
		return b.rawConn(ctx, func(conn *pgx.Conn) error {
			err := copyRows(ctx, conn, table, n, func(i int) ([]any, error) {
				value, err := msgpack.Marshal(added{N: 1, Note: noteOf(i, noteSize)})
				id, nr := key(i)
				return []any{id, nr, time.Unix(int64(i), 0), value}, err
			})
			if err == nil {
				_, err = conn.Exec(ctx, "VACUUM ANALYZE "+table)
			}
			if err != nil {
				return err
			}
			return f(conn, table)
		})
	})
}

func copyRows(ctx context.Context, conn *pgx.Conn, table string, n int, row func(i int) ([]any, error)) error {
	schema, name := splitTable(table)
	_, err := conn.CopyFrom(ctx, pgx.Identifier{schema, name}, []string{"id", "seq_nr", "at", "payload"}, pgx.CopyFromSlice(n, row))
	return err
}

// rawSelect measures selecting and decoding the events of one entity.
func (b *run) rawSelect(ctx context.Context, n int, measure func(scan func() (float64, error)) error) error {
	key := func(i int) (string, int64) { return "counter|0", int64(i + 1) }
	return b.filledTable(ctx, n, key, func(conn *pgx.Conn, table string) error {
		return measure(func() (float64, error) { return scanRows(ctx, conn, table, n) })
	})
}

func scanRows(ctx context.Context, conn *pgx.Conn, table string, n int) (float64, error) {
	began := time.Now()
	rows, err := conn.Query(ctx, "SELECT seq_nr, at, payload FROM "+table+" WHERE id = $1 ORDER BY seq_nr", "counter|0")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var sum int64
	for rows.Next() {
		var nr int64
		var at time.Time
		var payload []byte
		if err := rows.Scan(&nr, &at, &payload); err != nil {
			return 0, err
		}
		var e added
		if err := msgpack.Unmarshal(payload, &e); err != nil {
			return 0, err
		}
		sum += e.N
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if sum != int64(n) {
		return 0, errors.New("the sum of the raw rows is " + strconv.FormatInt(sum, 10))
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// connectDSN returns the DSN of the configured server. Without a configured server, it starts a
// private one with PostgreSQL's default durability; stop ends it.
func (b *run) connectDSN(ctx context.Context) (stop func() error, err error) {
	if b.scheme != "postgres" || b.dsn != "" {
		return func() error { return nil }, nil
	}
	b.progress("starting a private server")
	server, err := pgserver.Start(ctx, pgserver.Config{Settings: map[string]string{"shared_buffers": "128MB", "max_wal_size": "1GB"}})
	if err != nil {
		return nil, err
	}
	b.dsn = server.DSN("postgres")
	return server.Close, nil
}

func newSchema() string {
	return "refold_bench_" + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // no secret
}

// openPostgres opens an empty store in its own schema, which is dropped when the store is closed.
func (b *run) openPostgres(ctx context.Context) (*database, error) {
	d, err := b.openSchema(ctx, newSchema())
	if err != nil {
		return nil, err
	}
	stop := d.close
	d.close = func() error { return errors.Join(stop(), b.drop(context.WithoutCancel(ctx), d.schema)) }
	return d, nil
}

func (b *run) openSchema(ctx context.Context, schema string) (*database, error) {
	db, err := postgres.Open(ctx, b.dsn, postgres.Config{Schema: schema, MaxConns: 16, CachedStatements: true})
	if err != nil {
		return nil, err
	}
	return &database{journal: db.Journal(), snapshots: db.Snapshots(), schema: schema, close: db.Close}, nil
}

// fillChunk is the number of counters whose events one statement of fillPostgres stores.
const fillChunk = 500

// fillPostgres stores events of counters without Refold: the same ones for each counter, in its order.
func (b *run) fillPostgres(ctx context.Context, d *database, each int, ids ...string) error {
	parts := make([]int16, len(ids))
	for i, id := range ids {
		parts[i] = int16(journal.SliceOf(id)) //nolint:gosec // below 1,024
	}
	payloads := make([][]byte, each)
	var manifest string
	for i := range payloads {
		var err error
		if manifest, payloads[i], err = codec.Types(codec.Name[added]("added")).Encode(added{N: 1, Note: noteOf(i, noteSize)}); err != nil {
			return err
		}
	}
	schema := pgx.Identifier{d.schema}.Sanitize()
	return b.rawConn(ctx, func(conn *pgx.Conn) error {
		for from := 0; from < len(ids); from += fillChunk {
			b.progress("writing %d events, %d of %d entities", len(ids)*each, from, len(ids))
			to := min(from+fillChunk, len(ids))
			if _, err := conn.Exec(ctx, `
				WITH last AS (SELECT last_value AS ordinal FROM `+schema+`.ordinals), stored AS (
					INSERT INTO `+schema+`.events (id, seq_nr, ordinal, slice, at, writer, manifest, payload)
						SELECT i.id, e.nr, last.ordinal + (i.n - 1) * $6 + e.nr, i.slice, $3, 'bench', $4, e.payload
						FROM last, unnest($1::text[], $2::smallint[]) WITH ORDINALITY AS i(id, slice, n), unnest($5::bytea[]) WITH ORDINALITY AS e(payload, nr))
				SELECT setval('`+schema+`.ordinals', ordinal + $6::bigint * cardinality($1::text[])) FROM last`,
				ids[from:to], parts[from:to], filledAt, manifest, payloads, each); err != nil {
				return err
			}
		}
		// The server would otherwise do this during the measurement.
		if _, err := conn.Exec(ctx, "VACUUM ANALYZE "+schema+".events"); err != nil {
			return err
		}
		_, _ = conn.Exec(ctx, "CHECKPOINT") // only if the role may
		return nil
	})
}

func (b *run) drop(ctx context.Context, schema string) (err error) {
	return b.rawConn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
		return err
	})
}

func (b *run) rawConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(context.WithoutCancel(ctx)))
}

func (b *run) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, b.dsn)
	if err != nil {
		return nil, errors.New("bench: connect to the server for the raw figure") // the cause may contain the password
	}
	return conn, nil
}

// rawTable runs f with the name of an empty table that has the columns of a minimal event log: an
// ID, a number, a time, a payload and the primary key. With ordered, the table also has the order
// over all IDs that projections need.
func (b *run) rawTable(ctx context.Context, ordered bool, f func(table string) error) error {
	schema := newSchema()
	quoted := pgx.Identifier{schema}.Sanitize()
	order := ""
	if ordered {
		order = ", ordinal bigint GENERATED ALWAYS AS IDENTITY, UNIQUE (ordinal)"
	}
	err := b.rawConn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `CREATE SCHEMA `+quoted+`;
			CREATE TABLE `+quoted+`.raw (
				id text COLLATE "C" NOT NULL,
				seq_nr bigint NOT NULL,
				at timestamptz NOT NULL,
				payload bytea NOT NULL,
				PRIMARY KEY (id, seq_nr)`+order+`
			)`)
		return err
	})
	if err != nil {
		return fmt.Errorf("bench: create the raw table: %w", err)
	}
	return errors.Join(f(quoted+".raw"), b.drop(context.WithoutCancel(ctx), schema))
}
