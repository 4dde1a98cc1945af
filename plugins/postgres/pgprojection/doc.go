// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgprojection keeps the positions of projections in PostgreSQL, so that
// a read model in the same database changes in one transaction with them.
//
//	pool, err := pgxpool.New(ctx, dsn)
//	store, err := pgprojection.NewStore(pool, pgprojection.Config{})
//	totals, err := projection.New(projection.Config[Event]{
//		Name:     "totals",
//		Journal:  j,
//		Criteria: journal.Criteria{Type: "account"},
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
// The journal may be anywhere: in the same database, in another one, or no PostgreSQL
// at all. The table of positions is part of the schema that postgres.Open and postgres.Migrate create,
// in the database of the read model.
//
// # Guarantees
//
//   - Of two transactions that handle the same events, one waits for the other
//     and is fenced before it has called its handler.
//   - A transaction that loses against others, in a deadlock or a serialization
//     failure, is tried 5 times before it counts as a failure of the store.
//   - A lost connection, a shutdown or a full disk is never blamed on an event.
//   - Statements of its own are not prepared, and keep nothing in the session: a
//     proxy that pools transactions may stand between. Those of the handler go
//     as the pool is set up.
//
// # Caveats
//
//   - A handler that adds up events makes one statement for the batch: a statement
//     for each event is ten times slower or worse.
//   - Workers that change the same rows wait for each other; order the rows in each
//     statement by their key, and they do not deadlock.
//   - A handler must not end the transaction, and must not go on after an error in
//     it: PostgreSQL has rolled it back.
package pgprojection
