// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

type (
	Event interface{ isAccountEvent() }
	// Deposited is the event of the examples.
	Deposited struct{ Amount int64 }
)

func (Deposited) isAccountEvent() {}

// balances keeps the table balances, with a row for each account.
func balances(j journal.Journal, pool *pgxpool.Pool) (*projection.Projection[Event], error) {
	store, err := pgprojection.NewStore(pool, pgprojection.Config{})
	if err != nil {
		return nil, err
	}
	return projection.New(projection.Config[Event]{
		Name:     "balances",
		Journal:  j,
		Criteria: journal.Criteria{Types: []string{"account"}},
		Events:   codec.Types(codec.Name[Deposited]("deposited")), // Type.Events of the aggregate
		Handler: projection.ExactlyOnce[Event, pgx.Tx]{
			Store: store,
			Handle: func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[Event]) error {
				sums := make(map[string]int64)
				for i := range events {
					if e, ok := events[i].Event.(Deposited); ok {
						sums[events[i].EntityID()] += e.Amount
					}
				}
				ids := slices.Sorted(maps.Keys(sums)) // in order, so that workers do not deadlock
				amounts := make([]int64, len(ids))
				for i, id := range ids {
					amounts[i] = sums[id]
				}
				_, err := tx.Exec(ctx, `INSERT INTO balances (account, amount) SELECT * FROM unnest($1::text[], $2::bigint[])
					ON CONFLICT (account) DO UPDATE SET amount = balances.amount + excluded.amount`, ids, amounts)
				return err
			},
			Clear: func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `DELETE FROM balances`)
				return err
			},
		},
	})
}

// A table that is updated from a journal in the same database. The example needs a server, so it is
// only compiled.
func Example() {
	ctx := context.Background()
	dsn := os.Getenv("BANK_DATABASE")
	db, err := postgres.Open(ctx, dsn, postgres.Config{}) // creates the table of positions too
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close() //nolint:errcheck // it never fails
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		fmt.Println("BANK_DATABASE can't be read") // the error may quote a password
		return
	}
	defer pool.Close()
	if _, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS balances (account text PRIMARY KEY, amount bigint NOT NULL)`); err != nil {
		fmt.Println(err)
		return
	}
	p, err := balances(db.Journal(), pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := p.Run(ctx); err != nil { // until ctx ends; CatchUp returns when all existing events are handled
		fmt.Println(err)
	}
}
