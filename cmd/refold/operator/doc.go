// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package operator holds the commands with which an operator looks into a
// journal and its snapshots, for a program to use as they are:
//
//	events [ID]      lists persistence IDs, or the events of one
//	snapshots [ID]   lists snapshots, or prints one
//	verify [ID]      checks that nothing is missing or damaged
//	rebuild ID       refolds an entity from its first event and compares it
//	                 with its present state; or says what it would be without
//	                 some events, or was after one
//	tail             follows the events of all, in the order of the journal
//	copy FROM TO     makes one journal hold what another does, of any kind
//
// Package pgjournal adds journals on PostgreSQL and the command migrate. Durable holds further ones, on what nodes have on disk of replicated data.
//
// The command refold has them, but it can't know the Go types of anybody's
// entities. What needs them, rebuild and upcasters, needs a program that has
// them, which is three lines:
//
//	func main() {
//		operator.Main(operator.Entity(AccountType(rates)), operator.Entity(LedgerType()))
//	}
//
// A program with commands of its own runs a Program with the arguments that are
// meant for it:
//
//	status := operator.Program{Name: "bank refold", Entities: types}.Run(ctx, args)
//
// And Verify is there without a command line: run with the types of a program it
// decodes every event and every snapshot in a journal, so it proves before a
// release that nothing was forgotten. eventsourcingtest.Golden proves the same in a
// test, from samples.
//
//	what is stored          without the Go type            with it, by Entity
//	──────────────          ───────────────────            ──────────────────
//	msgpack, JSON           shown, well-formed?            decoded in full?
//	another format          its size                       decoded in full?
//	state                   shown, well-formed?            decoded in full, refolded
//
// # Guarantees
//
//   - Nothing is changed, but by copy and migrate: LevelDB is opened read-only, a
//     directory that is missing stays missing, a database gets no table, and no
//     other command appends or deletes.
//   - Passwords in addresses are not printed; see PostgresAddress.
//   - What is stored can be anything. It is checked before it is decoded, sizes
//     are bounded, and what a terminal would act on is escaped.
//   - With --json there is one object a line on standard output, and nothing
//     else; notes for people go to standard error.
//   - The exit status is ExitOK, ExitProblems or ExitFailed, and tells a problem
//     in the data from a mistake in the arguments.
//
// # Caveats
//
//   - A LevelDB directory that another process has open for writing can't be
//     looked into: leveldb.ErrInUse.
//   - JSON has fewer types than what is stored. Bytes are shown in base64, times
//     as text, keys that are no text as their JSON, and text that is not UTF-8
//     with U+FFFD in its place. Numbers are written in full, whatever their size.
//   - A table cuts payloads short; --json does not, up to 8 MiB.
//   - What rebuild compares is the encoded state. A field that is tagged
//     refold:"-" is no part of it.
package operator
