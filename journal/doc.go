// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package journal defines the event log of Refold: the interface that a storage plugin implements,
// and the queries and the circuit breaker on top of it.
//
//	entities      submit writes                     recover
//	   │                                              ▲
//	   ▼                                              │
//	writer        groups writes into appends       filter   detects a second writer
//	   │                                              ▲
//	   ▼                                              │
//	WithBreaker   call timeouts, circuit breaker ─────┘     (replays are forwarded)
//	   │
//	   ▼
//	Journal       a plugin
//
// A program opens a plugin and passes it to the runtime (package eventsourcing), which contains the
// writer and the replay filter.
//
// # Queries
//
// A plugin that implements Querier can be read across persistence IDs, in one order for all
// readers. Each position in this order has an Offset:
//
//	account|1   ①────②───────────────⑤          one history for each ID
//	account|2        │    ③─────④    │
//	loan|1           │    │     │    │    ⑥
//	                 │    │     │    │    │
//	order    "" ①    ②    ③     ④    ⑤    ⑥  →   new events are added at the end
//	                      ▲               ▲
//	                      │               └─ End: Current completes here, Live waits for more
//	                      └─ a reader that stopped after ③ resumes here and receives ④ next
//
//	for e, err := range journal.Live(ctx, j, journal.Criteria{Types: []string{"account"}}, last) {
//		...
//		last = e.Offset // resume after this offset
//	}
//
//	                              existing           existing and new
//	events of all entities        Current            Live
//	  of some types               Criteria.Types     likewise
//	  with a tag                  Criteria.Tag       likewise
//	  of a range of slices        Criteria.Slices    likewise; SplitSlices computes the ranges
//	events of one ID              CurrentByID        LiveByID
//	persistence IDs               CurrentIDs         LiveIDs
//	highest number of an ID       HighestSequenceNr
//
// No event ever appears before a position that a reader has passed, so a reader that resumes after
// the last received offset gets each event exactly once. Fences and deleted events are left out.
// The records of Refold itself, whose types begin with ReservedPrefix, are returned only to a query
// that names their type. Offset.Compare orders two offsets of one journal; offsets of different journals are unrelated.
//
// # Guarantees
//
//   - Each persistence ID has the records 1, 2, 3 and so on. A write contains the sequence number
//     that it expects to be the highest. Of two concurrent writes, one therefore fails with
//     ErrConflict, and neither leaves a gap.
//   - A write is stored as a whole or not at all, and it is durable when Append reports it as stored.
//   - The outcome of a write is stored, not stored, or unknown. For an error, NotStored
//     distinguishes not stored from unknown. This package never retries a write: the owner of the
//     state must read the outcome first.
//
// # Caveats
//
//   - Payloads, tags and metadata are never copied. They must not be changed after they were passed
//     to Append or yielded by a query.
//   - A call that exceeds its timeout has an unknown outcome, and WithBreaker still waits for its
//     return. A plugin must respect the context; otherwise later calls wait as well.
//   - A wrapper hides the optional interfaces of the journal that it wraps. Use As instead of a type
//     assertion.
//
// Package journaltest checks whether a plugin implements the contract.
package journal
