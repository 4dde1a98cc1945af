// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine is the protocol of one event-sourced entity as a pure state
// machine: when a command may be handled, when an answer may leave, what
// happens after a write that failed, was rejected or has an unknown outcome.
//
// A Machine has no goroutine, clock, lock or I/O. Its shell (package
// eventsourcing) calls Step with what happened and carries out the Effects that
// come back; the user's aggregate stands behind the Behavior interface.
//
//	          Deliver                Recovered
//	absent ───────────▶ recovering ─────────────▶ ready ──stop──▶ stopped
//	                     ▲   ▲  │ failed            │
//	            Wake     │   │  ▼                   │ a write was not stored,
//	backing off ─────────┘   └─ backing off         │ or nobody knows
//	     ▲                                          ▼
//	     └───────── concluded ◀── fencing ◀────── settling
//	                               │  ▲           (waits for all writes in flight)
//	                               ▼  │
//	                              probing
//
// # Pipelining
//
// While writes are in flight the next command is decided on the state as it will
// be once they have landed. What was decided waits in the pending list, in
// order; nothing of it is visible outside before all holding writes ahead of it
// are durable. When a write is not stored, its own command is answered with the
// error, and those behind it go back to the front of the stash to be decided
// again on the refolded state. Everything that can't simply be decided again
// (callbacks, stash and stop requests) is a barrier: no command is decided
// behind it until it took effect.
//
// # Fences
//
// A write whose outcome is unknown may still land. Before anything else the
// machine appends a fence, an empty record at the same number, through the same
// conditional append. If it is stored the lost write never can be; if it
// conflicts, the journal shows whose record is there.
package engine
