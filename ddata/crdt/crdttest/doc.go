// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package crdttest checks that a data type keeps the laws by which all nodes end
// with the same value. It is what the types of package crdt are held to, and it
// is public so that a type of one's own can be:
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
// A history is made from a seed: some nodes change their own value at random, and
// hear of each other now and then. The laws are checked on what the nodes then
// hold, see [Law]. Where one does not hold, the history is made as short as it can
// be, and shown step by step.
//
// Changes are best drawn from few elements, so that nodes meet: the defaults are
// for types with about four.
//
// # Caveats
//
// A passed run says that no counter-example was found. Whether the type means what
// it should, and whether the decoder withstands hostile data, is for tests of its
// own.
package crdttest
