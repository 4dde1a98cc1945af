// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package codec gives Go types names that outlive them, turns their values into
// bytes and back, and reads what older programs have written.
//
// A registry lists the types, once, where an aggregate is declared:
//
//	events := codec.Types(
//		codec.Name[Deposited]("deposited"),
//		codec.Name[Renamed]("renamed").Version(2),
//		codec.Upcast("renamed", 1, func(old RenamedV1) (Renamed, error) { ... }),
//		codec.Removed("greeted"),
//	)
//	manifest, payload, err := events.Encode(Deposited{Amount: 5})
//	values, err := events.DecodeAppend(nil, manifest, payload)
//
// # What is stored
//
// Beside each payload stands its manifest, which alone decides how it is read:
//
//	deposited            version 1, msgpack
//	renamed@2            version 2
//	renamed@2+json       version 2, written by the format "json"
//
//	                     Upcast          Upcast
//	stored  renamed  --> RenamedV1 ----> RenamedV2 ----> Renamed
//	        renamed@2 -----------------> RenamedV2 ----> Renamed
//	        renamed@3 ---------------------------------> Renamed
//	        moved    --> Moved ---Split--> Left, Arrived
//	        greeted  --> nothing, by Removed
//
// The payload is msgpack, with a struct as a map from field names to values, as
// the package vmihailenco/msgpack writes and reads it. Its tags mean the same: a
// name, "-", omitempty, alias and noinline; the others are refused. Types may
// have a form of their own, by both halves of one of these pairs, in this order:
// the msgpack package's CustomEncoder and CustomDecoder, its Marshaler and
// Unmarshaler, BinaryMarshaler and BinaryUnmarshaler, TextMarshaler and
// TextUnmarshaler (written as a string). In detail:
//
//   - Integers take as few bytes as they can. Times are instants, and come back
//     in UTC. Nil and empty slices and maps stay apart.
//   - What an interface holds loses its type: integers come back as int64
//     (uint64 if they are larger), structs as map[string]any, slices as []any.
//     Interfaces with methods are refused.
//   - Fields that are not in the data keep their zero value, and data without a
//     field is skipped. So fields can be added and removed without a new version,
//     and renamed with an alias: `msgpack:"new,alias:old"`.
//
// JSON is an alternative, and so is a Format of one's own; see Registry.Using.
//
// # Changing what is stored
//
// What is stored never changes, only how it is read. Each of these has a runnable
// example:
//
//	add a field         nothing to do if its zero value is right for old data,
//	                    else Version and Upcast             (Upcast, add field)
//	rename a field      msgpack:"new,alias:old"             (package, rename field)
//	remove a field      nothing to do: it is skipped
//	change a field      Version and Upcast                  (Upcast, add field)
//	rename a Go type    nothing to do: it keeps its name
//	rename a name       Was                                 (Type.Was)
//	merge types         an Upcast of each to the new one    (Upcast, merge)
//	split a type        Split                               (Split)
//	remove a type       Removed                             (Removed)
//	remove some events  Version and Split                   (Split, filter)
//	detach the domain   Adapt                               (Adapt)
//	another format      Using, which still reads the others (JSON, Format)
//
// An event that became several has one number, which all of them share. Whether
// all that was ever stored can still be read is a test that a program runs: see
// eventsourcingtest.Golden for samples of each release, and the command verify of
// package cmd/refold/operator for a whole journal.
//
// # Guarantees
//
// The same value gives the same bytes: maps of any key type are sorted by the
// encoded form of their keys, in interfaces too.
//
// Nothing is lost without a word. A field that is unexported, a type that can't
// be stored, and methods that are promoted from an embedded type and would hide
// the fields around it are mistakes, which Registry.Err and NewState report. The
// tag refold:"-" says that a field is no state. A number that does not fit its
// field is an error.
//
// Bytes are not trusted. Before they are decoded, Check has looked at every
// length, at the depth (100 nested arrays and maps), and at what follows. While
// they are decoded, no more than 64 times their size plus 1 MiB is allocated.
// Encode refuses what Decode would refuse. Panics of the user's methods become
// errors.
//
// Registries and States are immutable, and used by any number of goroutines.
//
// # Caveats
//
// A type with an encoder of its own answers for that: for the order in which it
// writes its maps, and for what it allocates when it reads. A Format of one's
// own answers for its types, order and limits. encoding/json has rules of its
// own about tags and leaves out unexported fields.
//
// Values of little data and much memory, such as thousands of maps of one
// short entry each, in an interface, can exceed the limit and are refused.
package codec
