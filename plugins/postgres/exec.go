// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/journal"
)

// errNotStarted marks an error that occurred before anything was sent.
var errNotStarted = errors.New("not sent")

// statement is an SQL statement with the types of its parameters. Fixed types avoid a round trip to
// the server.
type statement struct {
	name string // name of the prepared statement, with Config.CachedStatements
	sql  string
	oids []uint32
	rows rows
}

// rows is what a result must contain, and whether the statement changes data.
type rows uint8

const (
	anyRows     rows = iota
	primaryRows      // at least one; the last column reports a standby, at least in the first row
	changed          // any rows of a change
	oneChanged       // one row of a change
)

// prepare prepares the statement unless the connection has prepared it.
func (st *statement) prepare(ctx context.Context, pg *pgconn.PgConn) error {
	if _, prepared := pg.CustomData()[st.name]; prepared {
		return nil
	}
	if _, err := pg.Prepare(ctx, st.name, st.sql, st.oids); err != nil {
		return err
	}
	pg.CustomData()[st.name] = struct{}{}
	return nil
}

// inBinary is the format of all parameters and results.
func inBinary() []int16 { return []int16{1} }

// run executes a statement as its own transaction and calls row for each row of the result. The
// values belong to the driver, which overwrites them after row returns. The connection is released
// before run returns. The error is not translated.
func (db *DB) run(ctx context.Context, st *statement, params [][]byte, row func(values [][]byte) error) error {
	began := time.Now()
	defer func() { db.watch.logSlow(ctx, st.name, began) }()
	conn, err := db.acquire(ctx)
	if err != nil {
		return err
	}
	defer db.release(ctx, conn)
	pg := conn.Conn().PgConn()
	delete(pg.CustomData(), lastWarning)
	var reader *pgconn.ResultReader
	if db.cfg.CachedStatements {
		if err = st.prepare(ctx, pg); err != nil {
			return describe([]error{errNotStarted, err}, "%s", reason(err))
		}
		reader = pg.ExecPrepared(ctx, st.name, params, inBinary(), inBinary())
	} else {
		reader = pg.ExecParams(ctx, st.sql, params, st.oids, inBinary(), inBinary())
	}
	var bad error
	read := 0
	for ; bad == nil && reader.NextRow(); read++ {
		values := reader.Values()
		if last := len(values) - 1; st.rows == primaryRows {
			if values[last] != nil && values[last][0] != 0 {
				bad = db.onStandby()
				break
			}
			values = values[:last]
		}
		if row != nil {
			bad = row(values)
		}
	}
	if bad == nil && (st.rows == oneChanged && read != 1 || st.rows == primaryRows && read == 0) {
		bad = errResult
	}
	if _, err = reader.Close(); err == nil {
		err = bad
	}
	if warning := pg.CustomData()[lastWarning]; err == nil && warning != nil && st.rows >= changed {
		err = fmt.Errorf("the commit may not have reached a standby: %v", warning)
	}
	return err
}

// lastWarning is the key of the last warning in the custom data of a connection. The server commits
// with a warning when the wait for a synchronous standby is canceled.
const lastWarning = "warning"

func keepWarning(pg *pgconn.PgConn, n *pgconn.Notice) {
	if warning := (*pgconn.PgError)(n); severity(warning) == "WARNING" {
		pg.CustomData()[lastWarning] = warning.Message
	}
}

func (db *DB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if ctx.Err() != nil {
		return nil, notStarted(ctx)
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return nil, describe([]error{errNotStarted, err}, "no connection: %s", reason(err))
	}
	return conn, nil
}

// notStarted is the error of a statement that was not sent because the context has ended.
func notStarted(ctx context.Context) error {
	return describe([]error{errNotStarted, context.Cause(ctx)}, "%v", context.Cause(ctx))
}

// release returns a connection to the pool. A connection that has failed or that may still receive
// a cancel request is closed instead; its place in the pool is free immediately.
func (db *DB) release(ctx context.Context, conn *pgxpool.Conn) {
	if ctx.Err() == nil && !conn.Conn().IsClosed() {
		conn.Release()
		return
	}
	lost := conn.Hijack()
	raw := lost.PgConn().Conn()
	if ctx.Err() != nil && !lost.IsClosed() {
		_ = lost.Close(context.WithoutCancel(ctx)) // ends the session; no transaction is open
	}
	_ = raw.Close()
	db.leaving.Go(func() { <-lost.PgConn().CleanupDone() })
}

// fail translates an error of run for the caller.
func (db *DB) fail(ctx context.Context, err error) error {
	for _, ours := range []error{nil, journal.ErrClosed, journal.ErrCorrupt, errRow, errResult, ErrReadOnly} {
		if errors.Is(err, ours) {
			return err
		}
	}
	return db.translate(ctx, err)
}

type statements struct {
	appendOne, appendMany, appendBatch statement
	replay, replayLarge, highest, ids  statement
	markDeleted, underWay, deleteSome  statement

	saveSnapshot, loadSnapshot, listSnapshots, deleteSnapshots statement

	highestMany, replayMany, loadMany statement // for gatherers
}

// Limits of a page of Replay. A larger single record forms a page of its own.
const (
	pageRecords = 1000
	pageBytes   = 1 << 20
	smallEvent  = pageBytes / pageRecords
)

// idPage is the number of persistence IDs that are read at once.
const idPage = 1000

// deletePage is the number of events that are deleted in one transaction.
const deletePage = 5000

func newStatements(schema string, class int32) statements {
	st := func(rows rows, name, sql string, oids ...uint32) statement {
		return statement{name: "refold_" + name, sql: strings.ReplaceAll(sql, "{s}", schema), oids: oids, rows: rows}
	}
	return statements{
		appendOne: st(oneChanged, "append_one", fmt.Sprintf("SELECT {s}.append_one(%d, $1, $2, $3, $4, $5, $6, $7, $8, $9)", class),
			pgtype.TextOID, pgtype.Int8OID, pgtype.Int2OID, pgtype.TimestamptzOID, pgtype.TextOID, pgtype.TextOID, pgtype.ByteaOID, pgtype.TextArrayOID, pgtype.ByteaOID),
		appendMany: st(oneChanged, "append_many", fmt.Sprintf("SELECT {s}.append_many(%d, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)", class),
			pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.Int4ArrayOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.Int2ArrayOID, pgtype.TimestamptzArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID),
		appendBatch: st(oneChanged, "append_batch", fmt.Sprintf("SELECT {s}.append_batch(%d, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)", class),
			pgtype.TextOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.Int2ArrayOID, pgtype.TimestamptzArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID),

		// A page is a range of sequence numbers, so that the server never sorts all following rows,
		// regardless of its statistics. The first row is no event: it has the number 0, and the first
		// number after the range in place of the metadata. As a column of all rows, this number would
		// cost the server a fifth of the time. The statement omits a writer and a manifest that are those
		// of the last row of the page before. It omits the payloads of large events and does not sum up
		// sizes, because most events are small and summing up their sizes takes longer than reading them.
		replay: st(primaryRows, "replay", `SELECT 0::int8 AS seq_nr, NULL::timestamptz, NULL::text, NULL::text, NULL::bytea, NULL::text[],
				int8send((SELECT n.seq_nr FROM {s}.events n WHERE n.id = $1 AND n.seq_nr > $3 AND n.seq_nr <= $4 ORDER BY n.seq_nr LIMIT 1)),
				pg_is_in_recovery()
			UNION ALL
			SELECT e.seq_nr, e.at, nullif(e.writer, $5), nullif(e.manifest, $6),
				CASE WHEN octet_length(e.payload) + coalesce(octet_length(e.metadata), 0) <= `+fmt.Sprint(smallEvent)+` THEN e.payload END,
				e.tags, CASE WHEN octet_length(e.metadata) <= `+fmt.Sprint(smallEvent)+` THEN e.metadata END, NULL
			FROM {s}.events e WHERE e.id = $1 AND e.seq_nr >= $2 AND e.seq_nr <= $3
			ORDER BY seq_nr`, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID),
		replayLarge: st(primaryRows, "replay_large", `SELECT `+rowColumns("p")+`, p.beyond, pg_is_in_recovery()
			FROM (SELECT e.*, b.beyond, octet_length(e.payload) + coalesce(octet_length(e.metadata), 0) AS size,
					sum(octet_length(e.payload) + coalesce(octet_length(e.metadata), 0))
						OVER (ORDER BY e.seq_nr ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS bytes
		FROM (SELECT (SELECT n.seq_nr FROM {s}.events n WHERE n.id = $1 AND n.seq_nr > $3 AND n.seq_nr <= $4 ORDER BY n.seq_nr LIMIT 1) AS beyond) b
		LEFT JOIN {s}.events e ON e.id = $1 AND e.seq_nr >= $2 AND e.seq_nr <= $3) p
			WHERE p.bytes IS NULL OR p.bytes <= `+fmt.Sprint(pageBytes)+` OR p.bytes = p.size
			ORDER BY p.seq_nr`, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.Int8OID),
		highest: st(primaryRows, "highest", `SELECT greatest(
			(SELECT e.seq_nr FROM {s}.events e WHERE e.id = $1 ORDER BY e.seq_nr DESC LIMIT 1),
			(SELECT d.deleted_to FROM {s}.deletions d WHERE d.id = $1), 0), pg_is_in_recovery()`, pgtype.TextOID),
		// The query jumps from one ID to the next, because an ID may have a million events. A
		// page that is not full ends with NULL, so that it has a row.
		ids: st(primaryRows, "ids", `WITH RECURSIVE hop(id) AS (
				(SELECT e.id FROM {s}.events e WHERE e.id > $1 ORDER BY e.id LIMIT 1)
				UNION ALL
				SELECT (SELECT e.id FROM {s}.events e WHERE e.id > hop.id ORDER BY e.id LIMIT 1) FROM hop WHERE hop.id IS NOT NULL
			)
			SELECT id, pg_is_in_recovery() FROM (
				(SELECT NULL AS id)
				UNION ALL
				(SELECT id FROM hop WHERE id IS NOT NULL LIMIT `+fmt.Sprint(idPage)+`)
				UNION
				(SELECT d.id FROM {s}.deletions d WHERE d.id > $1 ORDER BY d.id LIMIT `+fmt.Sprint(idPage)+`)
			) AS both_tables ORDER BY id LIMIT `+fmt.Sprint(idPage), pgtype.TextOID),

		markDeleted: st(changed, "mark_deleted", `INSERT INTO {s}.deletions AS d (id, deleted_to)
			SELECT $1, least($2, h.highest) FROM (SELECT greatest(
				(SELECT e.seq_nr FROM {s}.events e WHERE e.id = $1 ORDER BY e.seq_nr DESC LIMIT 1),
				(SELECT d.deleted_to FROM {s}.deletions d WHERE d.id = $1), 0)) AS h(highest)
			WHERE least($2, h.highest) > 0
			ON CONFLICT (id) DO UPDATE SET deleted_to = greatest(d.deleted_to, excluded.deleted_to)
			RETURNING deleted_to`, pgtype.TextOID, pgtype.Int8OID),
		// The locks of appends exist only on the primary. A standby would always answer that there are none.
		underWay: st(primaryRows, "under_way", fmt.Sprintf(`SELECT l.virtualtransaction, pg_is_in_recovery() FROM (SELECT) AS one
			LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = %d AND l.granted
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`, uint32(class))), //nolint:gosec // the same 32 bits
		// The result is 1 if events may be left after the range, and 2 without the mark. The number of
		// deleted events would not show it: a concurrent deletion may have deleted some of them. All events of the range are visible, because
		// DeleteTo has waited for the appends. The lower bound skips the index entries of events that
		// earlier deletions have deleted. Without the mark, which a restore may have removed since, nothing
		// is deleted: later events would use the same numbers again.
		deleteSome: st(oneChanged, "delete_some", `WITH mark AS (
				SELECT FROM {s}.deletions d WHERE d.id = $1 AND d.deleted_to >= $2
			), range AS (
				SELECT f.seq_nr AS first, f.seq_nr + least($2 - f.seq_nr, `+fmt.Sprint(deletePage-1)+`) AS upto FROM {s}.events f
				WHERE f.id = $1 AND EXISTS (SELECT FROM mark) ORDER BY f.seq_nr LIMIT 1
			), gone AS (
				DELETE FROM {s}.events e WHERE e.id = $1 AND e.seq_nr >= (SELECT first FROM range) AND e.seq_nr <= (SELECT upto FROM range)
				RETURNING e.ordinal, e.tags
			), untagged AS (
				DELETE FROM {s}.tags t USING gone g WHERE t.ordinal = g.ordinal AND t.tag = ANY (g.tags)
			)
			SELECT CASE WHEN NOT EXISTS (SELECT FROM mark) THEN 2::int8 WHEN (SELECT upto FROM range) < $2 THEN 1::int8 ELSE 0::int8 END`, pgtype.TextOID, pgtype.Int8OID),

		saveSnapshot: st(changed, "save_snapshot", `INSERT INTO {s}.snapshots (id, seq_nr, at, manifest, payload, checksum) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (id, seq_nr) DO UPDATE SET at = excluded.at, manifest = excluded.manifest, payload = excluded.payload, checksum = excluded.checksum`,
			pgtype.TextOID, pgtype.Int8OID, pgtype.TimestamptzOID, pgtype.TextOID, pgtype.ByteaOID, pgtype.Int8OID),
		loadSnapshot: st(anyRows, "load_snapshot", `SELECT seq_nr, at, manifest, CASE WHEN octet_length(payload) <= $6 THEN payload END, checksum FROM {s}.snapshots
			WHERE id = $1 AND seq_nr >= $2 AND seq_nr <= $3 AND at >= $4 AND at <= $5 ORDER BY seq_nr DESC LIMIT 1`,
			pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.TimestamptzOID, pgtype.TimestamptzOID, pgtype.Int8OID),
		listSnapshots: st(anyRows, "list_snapshots", `SELECT seq_nr, at FROM {s}.snapshots
			WHERE id = $1 AND seq_nr >= $2 AND seq_nr <= $3 AND at >= $4 AND at <= $5 ORDER BY seq_nr DESC LIMIT `+fmt.Sprint(pageRecords),
			pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.TimestamptzOID, pgtype.TimestamptzOID),
		deleteSnapshots: st(changed, "delete_snapshots", `DELETE FROM {s}.snapshots
			WHERE id = $1 AND seq_nr >= $2 AND seq_nr <= $3 AND at >= $4 AND at <= $5`,
			pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.TimestamptzOID, pgtype.TimestamptzOID),

		// The statements for gatherers read by index for one ID after the other: a subquery with a
		// limit is not joined in another way.
		highestMany: st(primaryRows, "highest_many", `SELECT r.n, greatest(
				(SELECT e.seq_nr FROM {s}.events e WHERE e.id = r.id ORDER BY e.seq_nr DESC LIMIT 1),
				(SELECT d.deleted_to FROM {s}.deletions d WHERE d.id = r.id), 0), pg_is_in_recovery()
			FROM unnest($1) WITH ORDINALITY AS r(id, n)`, pgtype.TextArrayOID),
		replayMany: st(primaryRows, "replay_many", `SELECT r.n, e.seq_nr, e.at, e.writer, e.manifest,
				CASE WHEN octet_length(e.payload) + coalesce(octet_length(e.metadata), 0) <= `+fmt.Sprint(smallEvent)+` THEN e.payload END,
				e.tags, CASE WHEN octet_length(e.metadata) <= `+fmt.Sprint(smallEvent)+` THEN e.metadata END, NULL::int8, pg_is_in_recovery()
			FROM unnest($1, $2, $3) WITH ORDINALITY AS r(id, first, last, n)
			LEFT JOIN LATERAL (SELECT * FROM {s}.events o WHERE o.id = r.id AND o.seq_nr >= r.first AND o.seq_nr <= r.last
				ORDER BY o.seq_nr LIMIT `+fmt.Sprint(gatherRecords)+`) e ON true`, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.Int8ArrayOID),
		// A snapshot that is too large has no checksum, so its caller reads it alone.
		loadMany: st(anyRows, "load_many", `SELECT r.n, s.seq_nr, s.at, s.manifest, CASE WHEN s.small THEN s.payload END, CASE WHEN s.small THEN s.checksum END
			FROM unnest($1, $2, $3, $4, $5, $6) WITH ORDINALITY AS r(id, min_nr, max_nr, min_at, max_at, size, n)
			CROSS JOIN LATERAL (SELECT *, octet_length(o.payload) <= least(r.size, `+fmt.Sprint(gatherSnapshot)+`) AS small FROM {s}.snapshots o
				WHERE o.id = r.id AND o.seq_nr >= r.min_nr AND o.seq_nr <= r.max_nr AND o.at >= r.min_at AND o.at <= r.max_at
				ORDER BY o.seq_nr DESC LIMIT 1) s`,
			pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.Int8ArrayOID, pgtype.TimestamptzArrayOID, pgtype.TimestamptzArrayOID, pgtype.Int8ArrayOID),
	}
}

// cancelGrace is how long a call whose context has ended waits for the outcome of its statement.
const cancelGrace = time.Second

// canceler handles the end of a call's context: it requests that the server cancels the statement,
// and waits for the reply, which contains the outcome. Without a reply the outcome is unknown.
//
// The connection is not reused afterwards (see DB.release), because a late cancel request would
// cancel the next statement.
type canceler struct {
	conn  *pgconn.PgConn
	grace time.Duration
	stop  context.CancelFunc
	done  chan struct{}
}

// HandleCancel implements ctxwatch.Handler.
func (c *canceler) HandleCancel(context.Context) { //nolint:contextcheck // that one has ended
	deadline := time.Now().Add(c.grace)
	_ = c.conn.Conn().SetDeadline(deadline) // fails only on a closed connection
	ctx, stop := context.WithDeadline(context.Background(), deadline)
	done := make(chan struct{})
	c.stop, c.done = stop, done
	go func() {
		defer close(done)
		defer stop()
		_ = c.conn.CancelRequest(ctx) // if it fails, the deadline ends the call
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *canceler) HandleUnwatchAfterCancel() {
	c.stop()
	<-c.done
	_ = c.conn.Conn().SetDeadline(time.Time{})
}
