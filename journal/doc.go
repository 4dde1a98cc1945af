// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package journal is the event log of Refold: the SPI that a plugin implements,
// and what stands between a plugin and the entities that use it.
//
//	entities      submit, and are told             recover
//	   │                                              ▲
//	   ▼                                              │
//	Writer        groups writes into commits       Filter   looks for a second writer
//	   │                                              ▲
//	   ▼                                              │
//	Guarded       call time-outs, circuit breaker ────┘     (replay passes through)
//	   │
//	   ▼
//	Journal       a plugin
//
// A program opens a plugin and hands it to the runtime, which does the rest. By
// hand it looks like this:
//
//	guarded, err := journal.WithBreaker(plugin, journal.BreakerConfig{})
//	writer, err := journal.NewWriter(guarded, journal.WriterConfig{})
//	writer.Submit(&journal.Request{Write: write, Stream: &stream, Owner: owner}) // owner.Written is called
//	filter, err := journal.NewFilter(journal.FilterConfig{})
//	for event, err := range filter.Apply(id, guarded.Replay(ctx, id, 1, journal.MaxSequenceNr)) { ... }
//
// # Queries
//
// A plugin that implements Querier can be read across persistence IDs, in one
// order for all readers. Each position in it has an Offset:
//
//	account|1   ①────②───────────────⑤          one history for each ID
//	account|2        │    ③─────④    │
//	loan|1           │    │     │    │    ⑥
//	                 │    │     │    │    │
//	order    "" ①    ②    ③     ④    ⑤    ⑥  →   what is appended comes behind the end
//	                      ▲               ▲
//	                      │               └─ End: Current completes here, Live waits for more
//	                      └─ a reader that left after ③ resumes here: ④ is next, ③ does not come again
//
//	for e, err := range journal.Live(ctx, j, journal.Criteria{Type: "account"}, last) {
//		...
//		last = e.Offset // where to resume
//	}
//
//	                              up to now       and those to come
//	events of all IDs             Current         Live
//	  of a type                   Criteria.Type      likewise
//	  with a tag                  Criteria.Tag       likewise
//	  one share of the IDs        Criteria.Slices    likewise; SplitSlices makes the shares
//	events of one ID              CurrentByID     LiveByID
//	persistence IDs               CurrentIDs      LiveIDs
//	the last number of an ID      HighestSequenceNr
//
// No event ever appears before a position that a reader has passed, so that who
// resumes behind the last offset seen gets each event exactly once. Fences and
// deleted events are left out. Two offsets of one journal Compare; those of
// different journals mean nothing to each other.
//
// # Guarantees
//
//   - Each persistence ID has the records 1, 2, 3 and so on. A write names the
//     number that it expects to be the highest, so of two writers one gets
//     ErrConflict, and neither leaves a gap.
//   - A write is stored as a whole or not at all, and it is durable when Append
//     says that it is stored.
//   - The outcome of a write is stored, not stored, or unknown; NotStored tells
//     the latter two apart. Nothing in this package retries a write: who holds
//     the state must find out first.
//   - A Writer answers each request once, in order for each Stream, and sends
//     nothing that stands behind a failure.
//
// # Caveats
//
//   - CheckID says what a persistence ID is. A Writer does not check it again for
//     each write.
//   - Payloads, tags and metadata are never copied; they must not change once
//     they were handed over or yielded.
//   - A call whose time is up has an unknown outcome, and Guarded still waits
//     for it to return: a plugin must heed the context, or what waits behind the
//     call waits with it.
//   - Wrappers hide the optional interfaces of what they wrap. Ask with As, not
//     with a type assertion.
//
// A new plugin is finished when it passes the checks of package journaltest.
package journal
