// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package crdt holds data types that any node changes without asking the others,
// and that become the same everywhere once the nodes have heard of each other.
//
//	self, err := crdt.NewSelf(node)            // one for each start of a node
//	var visits crdt.PNCounter                  // zero values are empty
//	visits = visits.Add(self, 1)
//	var cart crdt.ORSet[string]
//	cart, err = cart.Add(self, "milk", "tea")
//	cart, err = cart.Merge(theirs)
//
// A replicator (package ddata) has the Self, keeps the values, and tells the
// others; its users only change and read them.
//
//	GCounter       a sum that grows                       deltas, any order
//	PNCounter      a sum that grows and shrinks           deltas, any order
//	GSet           elements come                          deltas, any order
//	ORSet          elements come and go; add wins         deltas, causal
//	Flag           false, once true
//	LWWRegister    one value, the last written wins
//	VersionVector  what was seen of each node
//	ORMap          keys to values of any type             deltas, causal
//	ORMultiMap     keys to sets                           deltas, causal
//	PNCounterMap   keys to counters                       deltas, causal
//	LWWMap         keys to values, the last written wins  deltas, causal
//
// A type of one's own is any with the methods of Data, and is made known by Define
// and NewTypes; package crdttest checks that it keeps the laws.
//
// # Typed and untyped
//
// ORSet[string] is what a program works with. Value is the same without type
// parameters: what a replicator stores, merges, encodes and decodes without knowing
// of Go types. Types.Value leads from one to the other, As back. Elements are held
// in their encoded form, so a Value can be merged where the Go type of its elements
// is unknown.
//
// # Guarantees
//
// Values are immutable, and shared freely between goroutines; a change copies
// the path to what it changes, not the set. Only Self is changed by use, and only the
// loop of its replicator uses it.
//
// The same value has the same bytes on all nodes, and nothing else is accepted as
// its form. What is decoded is checked before memory is taken for it: at most
// MaxSize bytes, and of them MaxElement for each element.
//
// Merge is commutative and idempotent for all types, and associative for all but
// maps whose keys are removed: see ORMap for what that means. A change that is
// merged is never lost, but for those of registers, where one wins.
//
// # Removed nodes
//
// What nodes have counted or added is kept by node, and nodes that have left would
// stay in there for ever. Prune moves the history of one to another node, once all
// know that it has left; Cleanup strips it from what did not take part. To merge
// values of which one is pruned and the other not even cleaned up counts twice.
//
// # Errors
//
// Values of two types under one name, elements that can't be encoded and timestamps
// at their end are errors, see ErrType, ErrElement and ErrClock, and panics in a
// user's type are made errors. A nil Self is a mistake in the program, and panics.
package crdt
