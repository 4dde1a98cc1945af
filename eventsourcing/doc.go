// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventsourcing is the persistence model: aggregates that handle
// commands, persist events, and are refolded from them whenever they start.
//
//	command ──▶ HandleCommand ──▶ events ──▶ ApplyEvent ──▶ state
//	                                │                         ▲
//	                                ▼                         │ recovery
//	                             journal ─────────────────────┘
//
// What a user writes is an aggregate: a struct that is the state, with two
// methods. See the package example.
//
// # Guarantees
//
// One instance of an entity handles its commands one at a time, in the order in
// which they came. Nothing that depends on an event is visible outside before
// the event is durable: not an answer, and not one to a command that only read.
// An append names the number it expects, so two instances can't both write. When
// a write fails, its caller learns the truth: done, not done, or, if the caller
// leaves first, unknown.
//
// # Pipelining
//
// While a write is in flight the next commands are handled already, on the state
// as it will be. From outside the history is the same as without; it is only
// faster. It is why HandleCommand must have no side effects: if a write ahead
// of it fails, a command is handled again, on the refolded state.
//
// # What an error of Ask means
//
// Done says whether the events of the command are stored. The first line that
// matches counts, since an error may wrap another one. NotDone reports whether it
// is a sure no.
//
//	error                      done?    what to do
//	*Refusal                   no (1)   the aggregate's own answer: tell the user
//	ErrPartlyStored            partly   look at the state before sending it again
//	*PanicError                no       a bug in the aggregate: look at the stack
//	ErrNoReply                 yes      nothing; the effect should name a reply (2)
//	ErrWrongReply              yes (3)  a bug: answer with the declared type
//	ErrUnhandled               no       a bug, or the wrong state for the command
//	ErrStashFull               no       send it again later, and fewer at a time
//	ErrClosed, ErrStopped      no       send it again, to a runtime that is open
//	ErrConflict                no       send it again; is the entity hosted twice?
//	ErrRejected                no       the event can't be stored: don't repeat it
//	ErrNotStored               no       send it again when the journal is well
//	ErrOutcomeUnknown          unknown  send it again only if twice does no harm
//	error of ctx               no       send it again, with more time
//	other, such as of recovery no (1)   see the error
//
// The notes are:
//
//  1. What the aggregate itself answers in a callback given to Then or Defer, with
//     ResolveError, or with Persist and Refuse in one effect, comes after events
//     that are stored.
//  2. Or it chose ReplyLater, and its entity stopped before: only the answer is
//     lost, and the error matches ErrStopped too.
//  3. No, if it is HostOptions.OverflowValue that has the wrong type.
//
// Where sending twice does harm, give the command an ID and keep it in the event.
//
// # Caveats
//
// Replies and events must not share memory with the state. Handlers must not
// block; use Context.Go for what takes time. A callback given to Then runs at
// most once: it does not run if the process dies before, so what must happen
// belongs into an event, and into package delivery.
package eventsourcing
