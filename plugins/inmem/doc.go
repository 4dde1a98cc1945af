// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package inmem implements the SPIs of Refold in the memory of the process. It is for tests,
// examples and trials, and it is the reference implementation for other plugins.
//
//	j := inmem.NewJournal()
//	defer j.Close()
//	errs := j.Append(ctx, []journal.Write{{ID: "account|42", Expect: 0, Events: events}})
//
// # Guarantees
//
// The zero value of every type is ready to use. An append is visible to all readers as soon as it
// returns. Its outcome is never unknown: Append checks its context only before it stores the first
// write. Several runtimes may share one [Journal]; the conditional append separates them like two
// nodes on one database. A runtime that is restarted on the same value finds all stored events.
// Queries read in the order of the appends, and an event can be read as soon as its append has
// returned. The order takes 12 bytes per event.
//
// # Caveats
//
// The contents are lost at the end of the process and at Close. Offsets become invalid at the same
// time: an old offset is rejected or refers to another event. Payloads, tags and metadata are kept
// without a copy, so a caller that modifies them afterwards modifies the history.
package inmem
