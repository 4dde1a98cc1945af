// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package codec gives Go types permanent names, encodes and decodes their values, and reads values
// that older programs have written.
//
// A registry lists the types where an aggregate is declared:
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
// # Stored format
//
// Each payload is stored with its manifest, which determines how it is read:
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
// The payload is msgpack in the form of package vmihailenco/msgpack: a struct is a map from field
// names to values. The tags of that package have the same meaning: a name, "-", omitempty, alias
// and noinline; other options are rejected. A type may encode itself by both methods of one of
// these pairs, in this order: Marshaler and Unmarshaler, BinaryMarshaler and BinaryUnmarshaler,
// TextMarshaler and TextUnmarshaler (written as a string). In detail:
//
//   - Integers are encoded in as few bytes as possible. Times are instants and are decoded in UTC.
//     Nil and empty slices and maps are distinguished.
//   - Values in an interface lose their type: integers are decoded as int64 (uint64 if larger),
//     structs as map[string]any, slices as []any. Interfaces with methods are rejected.
//   - Fields that are missing in the data keep their zero value, and unknown fields in the data are
//     skipped. Fields can therefore be added without a new version. See "Rolling restarts" for
//     fields that are renamed or removed.
//
// A registry can write JSON or a custom Format instead; see Registry.Using.
//
// # Changing the stored format
//
// Stored data never changes, only the way it is read. Each of these has a runnable example:
//
//	add a field         nothing to do if its zero value is right for old data,
//	                    else Version and Upcast             (Upcast, add field)
//	rename a field      the tag msgpack:"old" keeps its stored name
//	                                                        (package, rename field)
//	remove a field      stop reading it, one release later stop writing it
//	change a field      Version and Upcast                  (Upcast, add field)
//	rename a Go type    nothing to do: it keeps its name
//	change a name       Was                                 (Type.Was)
//	merge types         an Upcast of each to the new one    (Upcast, merge)
//	split a type        Split                               (Split)
//	remove a type       Removed                             (Removed)
//	remove some events  Version and Split                   (Split, filter)
//	detach the domain   Adapt                               (Adapt)
//	another format      Using, which still reads the others (JSON, Format)
//
// # Rolling restarts
//
// In a rolling restart, and after a rollback, programs of the previous release read the data of the
// next one. They reject a name or a version that they do not have. They skip a field that they do
// not have, and read zero for a field that is missing, without an error. A stored name of a field
// therefore changes in two releases: the first one reads both names and writes the old one, the next
// one writes the new one, after the first one has replaced all earlier programs:
//
//	first release   Owner string `msgpack:"Name,alias:Owner"`
//	next release    Owner string `msgpack:"Owner,alias:Name"`
//
// A name or a version is new for the previous release in the same way: read it first, with Was or
// with an Upcast of the later version, and write it one release later. docs/evolution.md has the rules
// for all kinds of changes.
//
// Events that were split from one stored event share its sequence number. Tests of a program verify
// that stored data can still be read: see eventsourcingtest.Golden for samples of each release, and
// the command verify of package cmd/refold/operator for a whole journal.
//
// # Guarantees
//
// The same value is encoded to the same bytes: maps are sorted by the encoded form of their keys,
// also in interfaces.
//
// No field is lost silently. Registry.Err and NewState report an unexported field, a type that
// cannot be stored, and methods that are promoted from an embedded type and would hide the fields
// around it. The tag refold:"-" excludes a field from the state. A number that does not fit its
// field is an error.
//
// Input is not trusted. Before decoding, Check validates every length, the depth (100 nested arrays
// and maps), and the end of the data. Decoding allocates no more than 64 times the size of the data
// plus 1 MiB. Encode rejects values that Decode would reject. Panics of methods of the values
// become errors.
//
// Registries and States are immutable and safe for concurrent use.
//
// # Caveats
//
// A type that encodes itself is responsible for the order in which it writes its maps, and for the
// memory that it allocates when it decodes. A custom Format is responsible for its types, order and
// limits. encoding/json has its own rules for tags and leaves out unexported fields.
//
// A value that is small when encoded and large in memory, such as thousands of maps with one short
// entry each in an interface, can exceed the memory limit. It is rejected.
package codec
