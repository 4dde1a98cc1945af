// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

// Law is one of the laws, or a set of them.
type Law uint

// The laws, about any values a, b and c that the nodes of a history hold. + is
// Merge.
const (
	// Commutative says: a+b = b+a, with the same bytes.
	Commutative Law = 1 << iota
	// Associative says: (a+b)+c = a+(b+c).
	Associative
	// Idempotent says: a+a = a.
	Idempotent
	// Absorbing says: (a+b)+a = a+b. What was merged is never lost again: values
	// only grow.
	Absorbing
	// Converges says: nodes that hear of each other's values in any order, again
	// and again, end with the same bytes.
	Converges
	// OneForm says: a value or a delta that is encoded and decoded is the same
	// and has the same bytes, and a part of the bytes is not taken for one.
	OneForm
	// MergesChanges says: to merge a value with one that was made from it gives
	// the same as to merge it with that one decoded. Types may take a short cut.
	MergesChanges
	// DeltasFold says: to apply the deltas of another node that are missing, in
	// causal order, gives the same as to merge its value; for FreeDeltas in any
	// order, and any number of times.
	DeltasFold
	// DeltasJoin says: to apply one delta made of several of a node gives the same
	// as to apply them one by one.
	DeltasJoin
	// Prunes says: once all nodes hold the same, one of them can take over the
	// history of another, and all can clean up what is left of it, and none of
	// that changes what the value means, nor does an older value that is
	// cleaned up and merged; that only for types that are Associative.
	Prunes
)

// String names a single law.
func (l Law) String() string {
	switch l {
	case Commutative:
		return "Commutative"
	case Associative:
		return "Associative"
	case Idempotent:
		return "Idempotent"
	case Absorbing:
		return "Absorbing"
	case Converges:
		return "Converges"
	case OneForm:
		return "OneForm"
	case MergesChanges:
		return "MergesChanges"
	case DeltasFold:
		return "DeltasFold"
	case DeltasJoin:
		return "DeltasJoin"
	case Prunes:
		return "Prunes"
	}
	return "several laws"
}

// Laws returns all laws, each by itself.
func Laws() []Law {
	return []Law{
		Commutative, Associative, Idempotent, Absorbing, Converges, OneForm, MergesChanges, DeltasFold, DeltasJoin, Prunes,
	}
}
