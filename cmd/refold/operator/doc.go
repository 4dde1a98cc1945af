// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package operator provides commands that inspect a journal and its snapshots, for use in any
// program:
//
//	events [ID]      lists persistence IDs, or the events of one; --all: also those of Refold itself
//	snapshots [ID]   lists snapshots, or prints one
//	verify [ID]      checks that no data is missing or damaged
//	rebuild ID       replays all events of an entity and compares the result with its present
//	                 state; or prints its state without some events, or after an earlier event;
//	                 --all: rebuilds all entities and lists those that differ
//	tail             follows the events of all entities, in the order of the journal
//	copy FROM TO     copies a journal to another one, of any kind
//
// Package pgjournal adds journals on PostgreSQL and the command migrate. The type Durable adds
// commands for the replicated data that nodes have on disk.
//
// The command refold has all of these commands, but not the Go types of your entities. Commands
// that need the types, such as rebuild, need a program that contains them:
//
//	func main() {
//		operator.Main(operator.Entity(AccountType(rates)), operator.Entity(LedgerType()))
//	}
//
// A program that has other commands passes the remaining arguments to a Program:
//
//	status := operator.Program{Name: "bank refold", Entities: types}.Run(ctx, args)
//
// Verify is also a function. With the types of a program it decodes every event and every snapshot
// in a journal, and compares every snapshot with the state that the events give: run it before a
// release to prove that the program still reads all stored data.
// eventsourcingtest.Golden proves the same in a test, from samples.
//
//	stored                  without the Go type        with the Go type, by Entity
//	──────                  ───────────────────        ───────────────────────────
//	msgpack, JSON           shown, syntax checked      decoded in full
//	another format          size shown                 decoded in full
//	state                   shown, syntax checked      decoded in full, replayed, compared
//	records of Refold       decoded in full            decoded in full
//
// # Guarantees
//
//   - Only copy and migrate change data. The other commands open LevelDB read-only, create no
//     directory and no table, and append and delete nothing.
//   - Passwords in addresses are not printed; see Redact.
//   - Stored data is not trusted. It is checked before it is decoded, its size is bounded, and
//     control characters for terminals are escaped.
//   - With --json, standard output contains one object per line and nothing else. Notes for people
//     go to standard error.
//   - The exit status is ExitOK, ExitProblems or ExitFailed. It distinguishes problems in the data
//     from mistakes in the arguments.
//
// # Caveats
//
//   - A LevelDB directory that another process has open for writing cannot be opened:
//     leveldb.ErrInUse.
//   - JSON has fewer types than the stored formats. Bytes are shown in base64, times as text, and
//     map keys that are not text as their JSON. In text that is not UTF-8, U+FFFD replaces invalid
//     bytes. Numbers are written in full.
//   - Tables truncate payloads; --json prints up to 8 MiB.
//   - verify and rebuild compare encoded states. A field with the tag refold:"-" is not part of them.
package operator
