// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package crdt provides conflict-free replicated data types: any node changes its copy without
// coordination, and all copies become equal once the nodes have exchanged their changes.
//
//	self, err := crdt.NewSelf(node)            // one per incarnation of a node
//	var visits crdt.PNCounter                  // zero values are empty
//	visits = visits.Add(self, 1)
//	var cart crdt.ORSet[string]
//	cart, err = cart.Add(self, "milk", "tea")
//	cart, err = cart.Merge(theirs)
//
// A replicator (package ddata) owns the Self, stores the values and replicates them; its users only
// change and read values.
//
//	GCounter       counter that grows                     deltas, any order
//	PNCounter      counter that grows and shrinks         deltas, any order
//	GSet           set that grows                         deltas, any order
//	ORSet          set with removal; add wins             deltas, causal
//	Flag           false, once true always true
//	LWWRegister    one value, the last write wins
//	VersionVector  a sequence number per node
//	ORMap          keys to values of any type             deltas, causal
//	ORMultiMap     keys to sets                           deltas, causal
//	PNCounterMap   keys to counters                       deltas, causal
//	LWWMap         keys to values, the last write wins    deltas, causal
//
// Users define further types: any type with the methods of Data, registered by Define and NewTypes.
// Package crdttest checks that such a type satisfies the laws.
//
// # Typed and untyped values
//
// Programs work with typed values such as ORSet[string]. Value is the same value without Go type
// parameters: replicators store, merge, encode and decode it. Types.Value converts a typed value to
// a Value, As converts it back. Elements are stored in their encoded form, so a node can merge a
// Value even if it does not have the Go type of its elements.
//
// # Guarantees
//
// Values are immutable and may be shared between goroutines. A change copies the path to the
// changed element, not the set. Only Self changes on use; it belongs to the loop of its replicator.
//
// Equal values have equal bytes on all nodes, and decoding accepts no other form. Decoding checks
// sizes before it allocates: at most MaxSize bytes per value and MaxElement bytes per element.
//
// Merge is commutative and idempotent for all types. It is associative for all types except maps
// from which keys are removed, see ORMap. A merged change is never lost, except for registers,
// where one write wins.
//
// # Removed nodes
//
// Counts and additions are stored per node, and would remain in the value after the node has left
// the cluster. Prune moves the history of a removed node to another node, once all nodes have
// observed the removal. Cleanup strips that history from the other copies. Merging a pruned value
// with one that was not cleaned up counts the history twice.
//
// # Errors
//
// Values of two types under one key, elements that cannot be encoded and exhausted timestamps are
// errors: ErrType, ErrElement, ErrClock. Panics in a user's type become errors. A nil Self is a
// programming error and panics.
package crdt
