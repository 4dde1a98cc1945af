// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package projection keeps read models up to date with a journal: tables to query, search indexes,
// mails to send, built from the events of all entities.
//
//	store, err := pgprojection.NewStore(pool, pgprojection.Config{}) // plugins/postgres/pgprojection
//	totals, err := projection.New(projection.Config[Event]{
//		Name:     "totals",
//		Journal:  j,
//		Criteria: journal.Criteria{Types: []string{"account"}},
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
// Each worker has a range of the slices of persistence IDs and its own position. It reads one page
// ahead of the handled events:
//
//	journal                    worker 0-255                        store
//	events ---- page -------> reader: decode, upcast
//	            page            | ...
//	                            v
//	                          batch ---- Handle(tx) ------------> read model
//	                                ---- position, same tx -----> 0-255: offset
//	                          failed?
//	                            | halve, retry, skip, or fail and pause 3 s to 30 s
//
// # Guarantees
//
//   - One worker handles the events of a persistence ID, in their order.
//   - ExactlyOnce: the read model always corresponds to the events up to the stored position,
//     despite crashes and with any number of processes that run the projection.
//   - AtLeastOnce: every event is handled. After a crash or a failure, events after the last saved
//     position are handled again: by default up to 100, or those of half a second.
//   - AtMostOnce: no event is handled twice.
//   - No event is lost at the boundary of a page, by a restart, or by a change of the number of
//     workers. An event that is deleted from the journal before a worker has read it is not handled, and
//     this is not an error: see eventsourcing.Snapshots.
//   - A panic of a handler is treated as an error. An *EventError names the event that could not be
//     decoded or handled, with its persistence ID, sequence number and manifest. The earlier events
//     of the batch are handled first.
//
// # Failures
//
// Config.OnFailure defines the treatment of events that the handler fails on: whether they are
// retried and then skipped. A worker that fails, or whose journal or store is unavailable, restarts
// at its stored position after a pause; the other workers continue. Each failure is logged with the
// attempt, the error and the time of the next attempt, and shown by Status. Run retries without a
// limit unless Config.MaxRestarts is set; CatchUp returns the error after about four minutes
// without progress. Errors that a restart cannot resolve end both.
//
// A rebuild marks the stored positions, so it survives a crash at any point: a process that loads
// marked positions clears the read model first. ExactlyOnce clears it in the transaction that
// removes the mark. AtLeastOnce and AtMostOnce claim the rebuild, clear the read model, and remove
// the mark afterwards.
//
// # Several processes
//
// Several processes may run the same projection, each as a standby of the others. A position moves
// only from the value that the process loaded. If two processes handle the same events, one of them
// is fenced. The fenced process pauses, and restarts at the position of the other process. With
// ExactlyOnce this counts no event twice; the fenced process waits for the lock on the position and
// does not call its handler. With AtLeastOnce, both processes may have handled the same events. With
// AtMostOnce, only the other one has. For throughput, let one process run the projection.
//
// A rebuild with ExactlyOnce has the same guarantees. With the other two, one of the processes
// claims the rebuild by a conditional move of the positions and renews the claim every 5 s. The
// others wait; one takes over 30 s after the last renewal. A Clear is canceled when the claim could
// not be renewed for 20 s. A process requests another rebuild if its Clear ended after another
// process had taken over, or if its AtLeastOnce handler handled events during the rebuild. The
// request is logged. Three cases remain undetected: a crash before this request, a handler that
// runs longer than a whole rebuild, and the event that AtMostOnce is handling at that time.
//
// # Caveats
//
//   - A batch of ExactlyOnce is one transaction. Handlers of several workers that change the same
//     rows wait for each other and may deadlock, unless all change them in the same order: sort by
//     the key, or use one worker.
//   - A read model lags the journal, at least by Status.Lag. A decision that requires the current
//     state belongs into an aggregate.
//   - A missing table cannot be distinguished from one that is created later: Run retries without a
//     limit. Set a Logger, or check Status.
//   - A rebuild does not include events that were deleted from the journal.
//   - Rebuild AtLeastOnce and AtMostOnce with one process if possible: stop the others first. Without
//     a transaction, a late Clear or handler of one process may interleave with the rebuild of
//     another. See "Several processes".
//   - Offsets are valid for the journal that created them. After a move to another journal use a new
//     name, or rebuild.
package projection
