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
// # Caveats
//
// Replies and events must not share memory with the state. Handlers must not
// block; use Context.Go for what takes time. A callback given to Then runs at
// most once: it does not run if the process dies before, so what must happen
// belongs into an event, and into package delivery.
package eventsourcing
