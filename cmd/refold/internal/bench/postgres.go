// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/internal/testkit/pgserver"
	"github.com/refold-io/refold/plugins/postgres"
)

// connectDSN says which server a run uses: the one that was named, or a private
// one with the durability that PostgreSQL has by itself, which stop ends.
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

// openPostgres opens an empty store in a schema of its own, which is dropped
// when the store is closed.
func (b *run) openPostgres(ctx context.Context) (*database, error) {
	schema := "refold_bench_" + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // no secret
	db, err := postgres.Open(ctx, b.dsn, postgres.Config{Schema: schema, MaxConns: 16, CachedStatements: true})
	if err != nil {
		return nil, err
	}
	return &database{
		journal: db.Journal(), snapshots: db.Snapshots(), schema: schema,
		close: func() error { return errors.Join(db.Close(), b.drop(context.WithoutCancel(ctx), schema)) },
	}, nil
}

// drop removes a schema with all that is in it.
func (b *run) drop(ctx context.Context, schema string) (err error) {
	return b.rawConn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
		return err
	})
}

// rawConn runs f on a connection of its own.
func (b *run) rawConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, b.dsn)
	if err != nil {
		return errors.New("bench: connect to the server for the raw figure") // the cause may hold the password
	}
	return errors.Join(f(conn), conn.Close(context.WithoutCancel(ctx)))
}

// rawTable runs f with the name of an empty table that holds what any log of
// events has to: an ID, a number, a time, a payload and the primary key. With ordered it
// has the one order over all IDs too, which read sides need.
func (b *run) rawTable(ctx context.Context, ordered bool, f func(table string) error) error {
	schema := "refold_bench_" + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // no secret
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
		return fmt.Errorf("bench: make the raw table: %w", err)
	}
	return errors.Join(f(quoted+".raw"), b.drop(context.WithoutCancel(ctx), schema))
}

// postgresAddress reports whether a journal's address is one of Postgres, and
// its connection string; none means a private server.
func postgresAddress(address string) (dsn string, ok bool) {
	if address == "postgres:" {
		return "", true
	}
	return address, strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://")
}
