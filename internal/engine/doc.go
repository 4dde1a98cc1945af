// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine is the protocol of one event-sourced entity as a pure state machine. It defines
// when a command is handled, when a reply may leave, and how the entity recovers after a write that
// failed, was rejected, or has an unknown outcome.
//
// A Machine has no goroutine, clock, lock or I/O. Its shell (package eventsourcing) calls Step for
// each input and carries out the returned Effects. The machine calls the user's aggregate through
// the Behavior interface.
//
//	          Deliver                Recovered
//	absent ───────────▶ recovering ─────────────▶ ready ──stop──▶ stopped
//	                     ▲   ▲  │ failed            │
//	            Wake     │   │  ▼                   │ a write was not stored,
//	backing off ─────────┘   └─ backing off         │ or its outcome is unknown
//	     ▲                                          ▼
//	     └───────── concluded ◀── fencing ◀────── settling
//	                               │  ▲           (waits for all writes in flight)
//	                               ▼  │
//	                              probing
//
// # Pipelining
//
// While writes are in flight, the machine decides the next command on the state that follows from
// those writes. Decided commands wait in the pending list, in order. Their effects become visible
// outside only when all earlier writes that hold back replies are durable. When a write is not
// stored, its command is answered with the error. The later commands return to the front of the
// stash and are decided again on the recovered state. Effects that cannot be decided again
// (callbacks, stash and stop requests) are barriers: the machine decides no later command until a
// barrier has taken effect.
//
// # Fences
//
// A write with an unknown outcome may still be stored later. Before any other write, the machine
// appends a fence: an empty record at the same sequence number, through the same conditional
// append. If the fence is stored, the lost write can never be stored. If the fence conflicts, the
// machine reads the record with this number from the journal. If another incarnation has deleted this
// record, the outcome stays unknown: the command is answered ErrOutcomeUnknown and is not decided again.
package engine
