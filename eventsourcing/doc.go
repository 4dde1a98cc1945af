// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventsourcing runs entities whose state is a fold over their events.
//
//	command ──▶ handler ──▶ events ──▶ Type.Apply ──▶ state
//	                          │                        ▲
//	                          ▼                        │ recovery
//	                       journal ────────────────────┘
//
// A program declares a Type: a struct S for the state, handlers that decide which events a command
// leads to, and a function that applies an event. See the package example and examples/quickstart.
//
// # Guarantees
//
// One instance of an entity handles its commands one at a time, in the order of their arrival.
// The runtime sends a reply only when all events in the state that the handler saw are durable,
// also the reply to a command that only reads; events of PersistAsync are the exception. An append
// names the sequence number that it expects, so two instances cannot both write. When a write
// fails, its caller gets the exact outcome: done, not done, or unknown if it stops waiting first.
//
// # Pipelining
//
// While a write is in flight, the next commands are handled on the state that follows from that write.
// Callers see the same history as without pipelining. If a write fails, the commands after it are
// handled again on the recovered state. For this reason handlers must have no side effects.
//
// # Errors of Ask
//
// StatusOf maps an error to an Outcome, the advice whether to send the command again, a stable
// code, and status codes of HTTP and gRPC. The first line that matches counts, because an error may
// wrap another.
//
//	error                                   done        again        HTTP              gRPC
//	ErrPartlyStored                         partly      no           500               13
//	ErrOutcomeUnknown                       unknown     if harmless  504               4
//	ErrNoReply, ErrWrongReply               yes         no           500               13
//	*Refusal: Rejected, BadRequest, Denied, by entity   no           422, 400, 403,    9, 3, 7,
//	          NotFound, AlreadyExists                                404, 409          5, 6
//	*PanicError, ErrRejected, ErrReadOnly,  no          no           500               13
//	  ErrNoJournal
//	ErrInvalid, ErrArgument                 no          no           400               3
//	ErrUnhandled, ErrUnknownType            no          no           501               12
//	ErrStashFull                            no          later        429               8
//	ErrConflict                             no          now          503               10
//	ErrStopped, ErrNotStored, ErrRecovery   no          later        503               14
//	context.DeadlineExceeded, Canceled      no          now          504, 499          4, 1
//	other error of a handler                by entity   no           500               2
//
// "By entity" means that a handler has returned the error. Usually nothing is stored, except events
// in the same Decision or before a callback. If a repeated command would do harm, give the command an
// ID and store the ID in the event.
//
// # Caveats
//
// Replies and events must not share memory with the state. Handlers must not block; Effect.Go runs
// slow work. A callback of Then runs at most once. It does not run if the process ends first. Work
// that must not be lost needs an event and package delivery.
package eventsourcing
