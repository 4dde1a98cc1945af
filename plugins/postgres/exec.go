// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/journal"
)

// errNotStarted marks an error that came before anything was sent.
var errNotStarted = errors.New("not sent")

// statement is one SQL statement with the types of its parameters, which spares
// the server from being asked for them: a call is one round trip.
type statement struct {
	name string // of the prepared statement, with Config.CachedStatements
	sql  string
	oids []uint32
}

// prepare prepares the statement unless the connection has it.
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

// run runs a statement as a transaction of its own and calls row with each row
// of the result, whose values belong to the driver and are overwritten after that.
// The connection is free again when run returns. The error is not translated.
func (db *DB) run(ctx context.Context, st *statement, params [][]byte, row func(values [][]byte) error) error {
	began := time.Now()
	defer func() { db.watch.took(ctx, st.name, began) }()
	conn, err := db.acquire(ctx)
	if err != nil {
		return err
	}
	defer db.release(ctx, conn)
	pg := conn.Conn().PgConn()
	var reader *pgconn.ResultReader
	if db.cfg.CachedStatements {
		if err = st.prepare(ctx, pg); err != nil {
			return tell([]error{errNotStarted, err}, "%s", reason(err))
		}
		reader = pg.ExecPrepared(ctx, st.name, params, inBinary(), inBinary())
	} else {
		reader = pg.ExecParams(ctx, st.sql, params, st.oids, inBinary(), inBinary())
	}
	var bad error
	for bad == nil && reader.NextRow() {
		if row != nil {
			bad = row(reader.Values())
		}
	}
	if _, err = reader.Close(); err == nil {
		err = bad
	}
	return err
}

// acquire takes a connection out of the pool.
func (db *DB) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if ctx.Err() != nil {
		return nil, tell([]error{errNotStarted, context.Cause(ctx)}, "%v", context.Cause(ctx))
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return nil, tell([]error{errNotStarted, err}, "no connection: %s", reason(err))
	}
	return conn, nil
}

// release gives a connection back. One that may still be hit by a request to
// cancel is closed, and so is one that has failed; its place in the pool is
// free at once, however long that takes.
func (db *DB) release(ctx context.Context, conn *pgxpool.Conn) {
	if ctx.Err() == nil && !conn.Conn().IsClosed() {
		conn.Release()
		return
	}
	lost := conn.Hijack()
	raw := lost.PgConn().Conn()
	if ctx.Err() != nil && !lost.IsClosed() {
		_ = lost.Close(context.WithoutCancel(ctx)) // the server may not notice; it is in no transaction
	}
	_ = raw.Close()
	db.leaving.Go(func() { <-lost.PgConn().CleanupDone() })
}

// certainly reports whether a statement that ended with this error of run is
// surely not committed, now or later.
func certainly(err error) bool { return errors.Is(err, errNotStarted) || certain(err) }

// fail makes an error of run one for the caller.
func (db *DB) fail(ctx context.Context, err error) error {
	for _, ours := range []error{nil, journal.ErrClosed, journal.ErrCorrupt, errRow, errResult} {
		if errors.Is(err, ours) {
			return err
		}
	}
	return db.translate(ctx, err)
}
