// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventsourcingtest tests types of entities: given these events, when this command arrives,
// then these events are stored and this is the reply.
//
//	account := eventsourcingtest.New(t, bank.AccountType(rates))
//	account.Given(bank.Deposited{Amount: 10})
//	eventsourcingtest.When(account, bank.Withdraw{Amount: 4}).
//		Stores(bank.Withdrawn{Amount: 4}).
//		Answers(6)
//	eventsourcingtest.When(account, bank.Withdraw{Amount: 40}).
//		Fails(bank.ErrInsufficientFunds)
//
// A [Kit] runs one entity in a runtime with a journal and a snapshot store in memory. Tests inject
// failures into the journal, see [Kit.Journal], and recover the entity with [Kit.Restart].
//
// # Further checks
//
// After each command the kit checks for mistakes that are easy to make and hard to find:
//
//   - Each event equals its decoded form, which Apply gets after a restart. A time with a zone differs:
//     only its instant is stored, so events have times of Context.Now or of the method UTC.
//   - The state in memory equals the state that the stored events lead to. It differs if a handler
//     changes the state, or if Apply depends on anything but the state and the event.
//   - A snapshot contains the whole state: the state survives its encoding.
//   - The reply and the command do not share memory with the state. Otherwise a later event would
//     change the reply, or the receiver of the reply would change the state.
//   - The handler returned all effects that it made.
//   - A command with a name (Type.Commands) and its reply survive their encoding.
//
// States are compared by their encoding in snapshots. A state that can't be encoded is compared with
// reflect.DeepEqual.
//
// # Stored data of earlier releases
//
// [Golden] keeps samples of all data that releases have stored. It checks that this release reads them,
// and that the previous release can read the data that this one writes. See docs/evolution.md.
//
// # Time
//
// In a bubble of testing/synctest, timers and pauses take no real time. Outside of a bubble, the
// pause after a failed write is 1 ms.
package eventsourcingtest
