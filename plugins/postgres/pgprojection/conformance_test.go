// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	conform(t, connect(t, dsn, nil), connect(t, dsn, nil))
}

// The store works with every default isolation level of a database and every query mode of the
// pool.
func TestConformanceOnOtherDefaults(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool := connect(t, dsn, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		c.MaxConns = 1
	})
	conform(t, pool, pool)
}

func conform(t *testing.T, pool, other *pgxpool.Pool) {
	t.Helper()
	store := newStore(pool)
	projectiontest.Run(t, projectiontest.Config{
		Open: func(projectiontest.T) projection.Store { return store },
		Reopen: func(projectiontest.T, projection.Store) projection.Store {
			return newStore(other)
		},
	})
	projectiontest.RunTx(t, projectiontest.TxConfig[pgx.Tx]{
		Open: func(projectiontest.T) projection.TxStore[pgx.Tx] { return store },
		Add: func(ctx context.Context, tx pgx.Tx, key string) error {
			_, err := tx.Exec(ctx, "INSERT INTO keys VALUES ($1)", key)
			return err
		},
		Keys: func(t projectiontest.T, _ projection.TxStore[pgx.Tx], prefix string) []string {
			rows, err := other.Query(t.Context(), "SELECT key FROM keys WHERE starts_with(key, $1)", prefix)
			if err != nil {
				t.Fatalf("query: %v", err)
			}
			keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("query: %v", err)
			}
			return keys
		},
	})
}
