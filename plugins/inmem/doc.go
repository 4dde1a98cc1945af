// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package inmem keeps what the SPIs of Refold store in the memory of the
// process. It serves tests, examples and trials, and it is the reference that
// the other plugins are measured against.
//
//	j := inmem.NewJournal()
//	defer j.Close()
//	errs := j.Append(ctx, []journal.Write{{ID: "account|42", Expect: 0, Events: events}})
//
// # Guarantees
//
// The zero value of every type is ready to use. An append is visible to all as
// soon as it returns, its outcome is never unknown, and a context that ends is
// noticed before the first write is stored or not at all. Several runtimes may
// share one [Journal]: the conditional append keeps them apart like two nodes
// on one database. A runtime that is restarted on the same value finds all that
// was stored. The order that queries read in is the order of the appends, and an
// event can be read as soon as its append has returned; that costs 12 bytes an
// event.
//
// # Caveats
//
// Contents end with the process, or with Close. So do offsets: one that is kept
// longer is refused, or means another event. Payloads, tags and metadata are
// kept as they were given, not copied: whoever changes them afterwards changes
// the history.
package inmem
