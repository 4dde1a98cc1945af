// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/docs/tutorial/order"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

// endregion

// Sale is a row of the read model: how much of a product is in all orders.
type Sale struct {
	Product string
	Units   int
	Revenue int // in cents
}

// sales is the read model and the projection that keeps it up to date.
type sales struct {
	*projection.Projection[order.Event]

	list func(ctx context.Context) ([]Sale, error) // by product
}

// region sql

const createSales = `CREATE TABLE IF NOT EXISTS sales (product text PRIMARY KEY, units bigint NOT NULL, revenue bigint NOT NULL)`

const addSale = `INSERT INTO sales VALUES ($1, $2, $3)
	ON CONFLICT (product) DO UPDATE SET units = sales.units + excluded.units, revenue = sales.revenue + excluded.revenue`

// endregion

// salesInPostgres keeps the table sales.
func salesInPostgres(ctx context.Context, j journal.Journal, pool *pgxpool.Pool) (s sales, err error) {
	if _, err = pool.Exec(ctx, createSales); err != nil {
		return s, err
	}
	store, err := pgprojection.NewStore(pool, pgprojection.Config{})
	if err != nil {
		return s, err
	}
	s.Projection, err = projection.New(projection.Config[order.Event]{
		Name:     "sales",
		Journal:  j,
		Criteria: journal.Criteria{Types: []string{"order"}},
		Events:   order.Type.Events,
		Handler:  projection.ExactlyOnce[order.Event, pgx.Tx]{Store: store, Handle: addSales, Clear: clearSales},
	})
	s.list = func(ctx context.Context) ([]Sale, error) { return listSales(ctx, pool) }
	return s, err
}

func addSales(ctx context.Context, tx pgx.Tx, events []projection.Envelope[order.Event]) error {
	for _, e := range events {
		if added, ok := e.Event.(order.Added); ok {
			if _, err := tx.Exec(ctx, addSale, added.Product, added.Units, added.Units*added.Price); err != nil {
				return err
			}
		}
	}
	return nil
}

func clearSales(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `DELETE FROM sales`)
	return err
}

func listSales(ctx context.Context, pool *pgxpool.Pool) ([]Sale, error) {
	rows, err := pool.Query(ctx, `SELECT product, units, revenue FROM sales ORDER BY product`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Sale])
}

// salesInMemory keeps a map, which is rebuilt from all events when the program starts.
func salesInMemory(j journal.Journal) (s sales, err error) {
	var mu sync.Mutex
	rows := map[string]Sale{}
	s.Projection, err = projection.New(projection.Config[order.Event]{
		Name:     "sales",
		Journal:  j,
		Criteria: journal.Criteria{Types: []string{"order"}},
		Events:   order.Type.Events,
		Handler: projection.AtLeastOnce[order.Event]{
			Store: new(projection.Memory),
			Handle: func(_ context.Context, e projection.Envelope[order.Event]) error {
				mu.Lock()
				defer mu.Unlock()
				if added, ok := e.Event.(order.Added); ok {
					row := rows[added.Product]
					rows[added.Product] = Sale{added.Product, row.Units + added.Units, row.Revenue + added.Units*added.Price}
				}
				return nil
			},
		},
	})
	s.list = func(context.Context) ([]Sale, error) {
		mu.Lock()
		defer mu.Unlock()
		return slices.SortedFunc(maps.Values(rows), func(a, b Sale) int { return cmp.Compare(a.Product, b.Product) }), nil
	}
	return s, err
}
