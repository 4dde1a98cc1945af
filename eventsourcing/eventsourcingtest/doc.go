// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventsourcingtest tests aggregates: given events, when a command comes, then these events
// are stored and this is the answer.
//
//	account := eventsourcingtest.New(t, bank.AccountType(rates))
//	account.Given(bank.Deposited{Amount: 10})
//	eventsourcingtest.When(account, bank.Withdraw{Amount: 4}).
//		Stores(bank.Withdrawn{Amount: 4}).
//		Answers(6)
//	eventsourcingtest.When(account, bank.Withdraw{Amount: 40}).
//		Fails(bank.ErrInsufficientFunds)
//
// A [Kit] runs one entity on a real runtime, with a journal and a snapshot store in memory. The
// journal fails on demand, see [Kit.Journal]; the entity is refolded whenever the test asks for it,
// see [Kit.Restart].
//
// # Further checks
//
// After each command the kit looks for mistakes that are easy to make and hard to find:
//
//   - a handler must not change the state, Apply must depend on nothing
//     but the state and the event, and events must survive their encoding: the
//     live state has to be what the stored events fold to.
//   - A snapshot must hold all of the state: it has to decode to what was encoded.
//   - An answer, and a command, must not share memory with the state: later
//     events would change an answer that was given, or its receiver the state.
//   - An effect has to be returned: one that a handler makes and drops does nothing.
//   - Commands that have names (Type.Commands) have to survive their encoding.
//
// States are compared by how they are encoded as snapshots; one that can't be encoded is compared
// with reflect.DeepEqual.
//
// # What was stored before
//
// [Golden] keeps samples of everything that any release has stored, and proves that the present one
// reads it.
//
// # Time
//
// Inside of a testing/synctest bubble timers and pauses take no time. Outside of it they do; after
// a failed write the entity pauses for a millisecond only.
package eventsourcingtest
