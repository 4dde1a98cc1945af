// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package journaltest checks implementations of journal.Journal, and contains a journal that fails
// on demand for tests of its users.
//
// A plugin calls [Run] in a test:
//
//	func TestJournal(t *testing.T) {
//		journaltest.Run(t, journaltest.Config{
//			Open:   func(tb testing.TB) journal.Journal { return open(tb, tb.TempDir()) },
//			Reopen: crashAndOpen,
//		})
//	}
//
// # Checks
//
//	TCK...          replays with bounds, with a loop left early, after deletions
//	Replay...       pages, reading ahead, cancelling, leaving
//	...InReplay     all methods in the body of a replay
//	Append...       one slot for each write, conflicts, units, several writes of an ID
//	Size..., RoundTrip..., IDs...   stored values are returned unchanged, invalid ones are rejected
//	TwoIncarnations, OneWinner, ... several writers of one ID: one wins
//	RandomCalls                     random calls against a model
//	VisibleOnReturn, Linearizable   concurrent calls
//	Fence..., Late..., Cancelled    unknown outcomes are settled and stay final
//	Delete..., List..., Close..., Reopen...
//	Query..., Await...              one order for all readers, resumed at any position, also live
//
// Checks are independent of each other. Each has its own journal and is a subtest with its name; a
// failure prints the call and its result. Checks do not wait for time to pass, except for an append
// that Config.Stall blocks.
//
// # Failing on demand
//
// [Faulty] wraps any journal and injects faults into chosen calls. By default the outcome of an
// affected call is unknown, as after a lost connection:
//
//	f := journaltest.NewFaulty(inmem.NewJournal())
//	f.Inject(journaltest.Fault{})                                // the next write is lost
//	f.Inject(journaltest.Fault{Do: journaltest.Store, Times: 2}) // two are stored, and reported as failed
//	late := f.Inject(journaltest.Fault{ID: id, Do: journaltest.Late})
//	...
//	late.Release() // now it is stored, or conflicts with later writes
//
// Frequent faults in tests of persistent entities:
//
//	fail the next write          Fault{ID: id, Err: err}
//	reject the next three        Fault{Do: Reject, Times: 3}
//	fail the next replay         Fault{Op: OpReplay, ID: id}
//	fail it at its fourth event  Fault{Op: OpReplay, AfterEvents: 3}
//	fail the next deletion       Fault{Op: OpDelete}
//	hold a write back            Fault{Do: Stall}
//	fail a chosen write           Fault{When: func(c Call) bool { return c.Write.Expect == 6 }}
package journaltest
