// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package crdttest checks the laws that make all copies of a data type converge. The types of
// package crdt are checked with it, and users can check their own types:
//
//	func TestTwoPhaseSetLaws(t *testing.T) {
//		t.Parallel()
//		crdttest.Run(t, crdttest.Config[TwoPhaseSet]{
//			Types: types, // crdt.NewTypes(nil, crdt.Define("two-phase-set", DecodeTwoPhaseSet))
//			Change: func(r *rand.Rand, _ *crdt.Self, s TwoPhaseSet) (TwoPhaseSet, error) {
//				word := string(rune('a' + r.IntN(4)))
//				if r.IntN(3) == 0 {
//					return s.Remove(word)
//				}
//				return s.Add(word)
//			},
//		})
//	}
//
// A history is generated from a seed: some nodes change their own value at random and sometimes
// receive the value of another node. The laws are checked on the resulting values, see [Law]. If a
// law is violated, the history is shortened as far as possible and printed step by step.
//
// Draw changes from few elements, so that the nodes often change the same element. The defaults
// suit types with about four elements.
//
// # Caveats
//
// A passed run means only that no counter-example was found. The package does not check that the
// type has the right meaning or that its decoder withstands hostile data.
package crdttest
