// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgprojection stores the positions of projections in PostgreSQL, so that a read model in
// the same database is updated in the same transaction.
//
//	pool, err := pgxpool.New(ctx, dsn)
//	store, err := pgprojection.NewStore(pool, pgprojection.Config{})
//	totals, err := projection.New(projection.Config[Event]{
//		Name:     "totals",
//		Journal:  j,
//		Criteria: journal.Criteria{Types: []string{"account"}},
//		Events:   AccountType().Events,
//		Handler: projection.ExactlyOnce[Event, pgx.Tx]{
//			Store: store,
//			Handle: func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[Event]) error {
//				days, amounts := add(events) // one row for each day
//				_, err := tx.Exec(ctx, `INSERT INTO totals (day, amount) SELECT * FROM unnest($1::date[], $2::bigint[])
//					ON CONFLICT (day) DO UPDATE SET amount = totals.amount + excluded.amount`, days, amounts)
//				return err
//			},
//			Clear: func(ctx context.Context, tx pgx.Tx) error {
//				_, err := tx.Exec(ctx, "DELETE FROM totals")
//				return err
//			},
//		},
//	})
//
// A batch is one transaction:
//
//	BEGIN
//	UPDATE refold.projections SET at_offset = next WHERE ... AND at_offset = last   -- 0 rows: fenced
//	...                                                                            -- the handler
//	COMMIT
//
// The journal may be in the same database, in another one, or not in PostgreSQL at all. The table
// of positions is part of the schema that postgres.Open and postgres.Migrate create, in the
// database of the read model.
//
// # Guarantees
//
//   - Of two transactions that handle the same events, the second waits for the first
//     and is fenced before it calls its handler.
//   - A transaction that the server aborts because of other transactions, in a deadlock or a
//     serialization failure, is tried up to 5 times before it counts as a failure of the store.
//   - A lost connection, a shutdown or a full disk never counts as a failure of an event.
//   - The store's statements are not prepared and leave no state in the session: a
//     proxy that pools transactions works. Statements of the handler use the
//     settings of the pool.
//
// # Caveats
//
//   - A handler should sum up the events of a batch in one statement: a statement
//     for each event is at least ten times slower.
//   - Workers that change the same rows wait for each other. Order the rows in each
//     statement by their key to avoid deadlocks.
//   - A handler must not end the transaction. After a failed statement the handler must return,
//     because PostgreSQL has aborted the transaction.
package pgprojection
