// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package journaltest checks implementations of journal.Journal, and has a
// journal that fails on demand for the tests of those who use one.
//
// A plugin is finished when it passes [Run]:
//
//	func TestJournal(t *testing.T) {
//		journaltest.Run(t, journaltest.Config{
//			Open:   func(tb testing.TB) journal.Journal { return open(tb, tb.TempDir()) },
//			Reopen: crashAndOpen,
//		})
//	}
//
// # What Run checks
//
//	TCK...          what a replay yields, with bounds, with a caller who leaves, after deletions
//	Replay...       pages, reading ahead, cancelling, leaving
//	...InReplay     all methods in the body of a replay's loop
//	Append...       one slot for each write, conflicts, units, several writes of an ID
//	Size..., RoundTrip..., IDs...   what is stored comes back, what can't be is refused
//	TwoIncarnations, OneWinner, ... several writers of one ID: one wins
//	RandomCalls                     random calls against a model
//	VisibleOnReturn, Linearizable   concurrent calls
//	Fence..., Late..., Cancelled    unknown outcomes become known, and stay what they are
//	Delete..., List..., Close..., Reopen...
//	Query..., Await...              one order for all readers, resumed anywhere, also live
//
// Checks are independent of each other. Each has a journal of its own,
// its name is the name of a subtest, and a failure says what was asked and what
// came back. They do not wait for time to pass, except for an append that Config.Stall holds.
//
// # Failing on demand
//
// A [Faulty] stands in front of any journal and injects faults into chosen
// calls. A call that fails like this has an unknown outcome, as when a
// connection is lost:
//
//	f := journaltest.NewFaulty(inmem.NewJournal())
//	f.Inject(journaltest.Fault{})                                // the next write is lost
//	f.Inject(journaltest.Fault{Do: journaltest.Store, Times: 2}) // two are stored, and nobody is told
//	late := f.Inject(journaltest.Fault{ID: id, Do: journaltest.Late})
//	...
//	late.Release() // now it lands, or is in conflict with what was written meanwhile
//
// What tests of persistent entities usually ask for:
//
//	fail the next write          Fault{ID: id, Err: err}
//	reject the next three        Fault{Do: Reject, Times: 3}
//	fail the next replay         Fault{Op: OpReplay, ID: id}
//	fail it at its fourth event  Fault{Op: OpReplay, AfterEvents: 3}
//	fail the next deletion       Fault{Op: OpDelete}
//	hold a write back            Fault{Do: Stall}
//	fail by what is written      Fault{When: func(c Call) bool { return c.Write.Expect == 6 }}
package journaltest
