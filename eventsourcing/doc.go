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
// # Goroutines
//
// An entity has no goroutine. Ask handles its command on the goroutine of its caller if the entity is
// idle and its journal stores no events at the time. The workers of the runtime handle everything else.
// See HostOptions.WorkersOnly.
//
// # Several runtimes on one journal
//
// Each runtime replies from its own state. If another runtime has written, the reply to a command that
// only reads is outdated, without an error, and a command that writes gets ErrConflict. Use package
// sharding, or set HostOptions.SharedJournal in all runtimes.
//
// # Pipelining
//
// While a write is in flight, the next commands are handled on the state that follows from that write.
// Callers see the same history as without pipelining. If a write fails, the commands after it are
// handled again on the recovered state. For this reason handlers must have no side effects.
//
// # Errors of Ask
//
// StatusOf maps an error to an Outcome, the advice whether to send the command again, status codes of
// HTTP and gRPC, and a stable code. The first line that matches counts, because an error may wrap
// another. Errors keep their lines when they travel between nodes.
//
//	error                     done       again        HTTP  gRPC  code
//	of this table, by entity  by entity  no           500   2     internal
//	ErrPartlyStored           partly     no           500   13    refold/partly_stored
//	ErrOutcomeUnknown         unknown    if harmless  504   4     refold/outcome_unknown
//	ErrNoReply                yes        no           500   13    refold/no_reply
//	ErrWrongReply             yes        no           500   13    refold/wrong_reply
//	ErrRecoveryTimeout        no         later        503   14    refold/recovery_timeout
//	ErrRecovery               no         later        503   14    refold/recovery
//	PanicError                no         no           500   13    refold/panic
//	ErrRejected               no         no           500   13    refold/rejected
//	ErrReadOnly               no         no           500   13    refold/read_only
//	ErrNoJournal              no         no           500   13    refold/no_journal
//	ErrArgument               no         no           400   3     refold/argument
//	ErrInvalid                no         no           500   13    refold/invalid
//	codec.ErrNotRegistered    no         no           500   13    refold/not_registered
//	ErrUnhandled              no         no           501   12    refold/unhandled
//	ErrUnknownType            no         no           501   12    refold/unknown_type
//	ErrStashFull              no         later        429   8     refold/stash_full
//	delivery.ErrFull          no         later        429   8     refold/outbox_full
//	ErrConflict               no         now          503   10    refold/conflict
//	ErrStopped                no         later        503   14    refold/stopped
//	ErrNotStored              no         later        503   14    refold/not_stored
//	journal.ErrHistoryGap     no         later        503   14    refold/history_gap
//	context.DeadlineExceeded  no         now          504   4     refold/deadline_exceeded
//	context.Canceled          no         now          499   1     refold/canceled
//	Refusal, Rejected         by entity  no           422   9     its own
//	Refusal, BadRequest       by entity  no           400   3     its own
//	Refusal, Denied           by entity  no           403   7     its own
//	Refusal, NotFound         by entity  no           404   5     its own
//	Refusal, AlreadyExists    by entity  no           409   6     its own
//	other                     by entity  no           500   2     internal
//
// "By entity" means that a handler has returned the error. Usually nothing is stored, except events
// in the same Decision or before a callback. The first line applies to an error that a handler has
// returned and that also matches another line, for example because it is the error of the handler's own
// Ask to another entity. A Refusal in such an error keeps its code and status. A Refusal that other code
// returns, such as a codec, is only the cause of an error of Refold. If a repeated command would do harm,
// give the command an ID and store the ID in the event.
//
// # Caveats
//
// Replies and events must not share memory with the state. Handlers must not block; Effect.Go runs
// slow work. A callback of Then runs at most once. It does not run if the process ends first. Work
// that must not be lost needs an event and package delivery.
//
// Short names for Context and Decision must have no type parameters if another package imports the
// entity: "type Context = eventsourcing.Context[Account, Event, int]". The Go compiler deadlocks when
// it imports a struct whose methods use a generic alias of a type with this struct, see
// https://go.dev/issue/79711. A program in one package may use "type Context[R any] = ...".
package eventsourcing
