// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package projection keeps read models up to date with a journal: tables to
// query, search indexes, mails to send, made from the events of all entities.
//
//	store, err := pgprojection.NewStore(pool, pgprojection.Config{}) // plugins/postgres/pgprojection
//	totals, err := projection.New(projection.Config[Event]{
//		Name:     "totals",
//		Journal:  j,
//		Criteria: journal.Criteria{Type: "account"},
//		Events:   AccountType(rates).Events,
//		Handler: projection.ExactlyOnce[Event, pgx.Tx]{
//			Store: store,
//			Handle: func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[Event]) error {
//				...
//			},
//			Clear: func(ctx context.Context, tx pgx.Tx) error {
//				_, err := tx.Exec(ctx, "delete from totals")
//				return err
//			},
//		},
//		Workers: 4,
//	})
//	err = totals.Run(ctx) // until ctx ends
//
// Each worker has a range of the slices that persistence IDs are spread over, and
// a position of its own. It reads one page ahead of what is handled:
//
//	journal                    worker 0-255                        store
//
//	 events ---- page -------> reader: decode, upcast
//	             page            |
//	             ...             v
//	                           batch ---- Handle(tx) ------------> read model
//	                                 ---- position, same tx -----> 0-255: offset
//	                 failed?     |
//	                 halve, retry, skip, or fail and pause 3 s to 30 s
//
// # Guarantees
//
//   - The events of a persistence ID are handled in their order, by one worker.
//   - ExactlyOnce: the read model is what the events up to the stored position
//     make of it, at every moment, whatever crashes, and however many processes
//     run the projection.
//   - AtLeastOnce: every event is handled; after a crash or a failure some of
//     those behind the last saved position are handled again: by default up to
//     100, or those of half a second.
//   - AtMostOnce: no event is handled twice.
//   - No event is lost at the boundary of a page, by a restart, or when the number
//     of workers changes.
//   - A panic of a handler is an error like any other. An event that can't be
//     decoded or handled is named by an *EventError, with its persistence ID,
//     number and manifest; the others of its batch are handled first, as far as
//     they come before it.
//
// # Failures
//
// What the handler returns an error for is dealt with by Config.OnFailure: retried,
// and then skipped, or not. A worker that fails, and one whose journal or store is
// away, begins again at its stored position after a pause; the others go on. Each time
// the Logger gets a warning with the attempt, the error and when the next one is,
// and Status has the same. Run goes on like that for ever, unless
// Config.MaxRestarts is set; CatchUp, which somebody waits for, gives up after
// about four minutes without getting on. Errors that no pause can mend end both.
//
// A rebuild marks the stored positions, so it survives a crash at any point: who
// finds the mark clears the read model first. ExactlyOnce clears in the
// transaction that takes the mark away; the others claim the rebuild, clear, and
// take the mark away then.
//
// # Several processes
//
// All of them may run the same projection, each as a standby of the others. A
// position moves only from where it was when it was loaded, so one of two that
// handle the same events is fenced: it pauses, and begins again where the other one
// is. With ExactlyOnce nothing is counted twice by that; the loser waits for the lock
// on the position and has not even called its handler. With AtLeastOnce both may
// have handled the events in between, and with AtMostOnce only the winner has. It
// costs: for throughput let one process run it.
//
// A rebuild with ExactlyOnce is as safe as all else. With the other two, one of the
// processes claims it, by a conditional move of the positions, and says every 5 s
// that it is still there; the others wait, and take over 30 s after it was heard
// of last. A Clear that can't say so for 20 s is canceled. Who finds that it has
// cleared nevertheless after another one took over, or that AtLeastOnce has handled
// events while another one rebuilt, asks for the rebuild again, and logs it. What is
// left is a process that does so and crashes before it finds out, a handler that
// outlasts a whole rebuild, and the event that AtMostOnce had in hand.
//
// # Caveats
//
//   - A batch of ExactlyOnce is one transaction. Handlers of several workers that
//     change the same rows wait for each other and may deadlock, unless all change
//     them in the same order: sort by the key, or use one worker.
//   - A read model is behind the journal, by Status.Lag at least. What must be
//     true at the moment of a decision belongs into an aggregate.
//   - A table that is missing looks like one that is not there yet: Run tries again
//     for ever. Give it a Logger, or look at Status.
//   - Events that were deleted from the journal are not there for a rebuild.
//   - Rebuild AtLeastOnce and AtMostOnce with one process if you can: stop the
//     others first. Without a transaction, what one process does late, a Clear or a
//     handler, may come between what another one builds. See "Several processes".
//   - Positions mean something to the journal that made them. Who moves to another
//     journal takes another name, or rebuilds.
package projection
