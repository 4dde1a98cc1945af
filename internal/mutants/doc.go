// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package mutants plants faults into the source and requires a test to notice.
//
// A mutant is a file below this directory, best in a folder named after the
// package it is about:
//
//	internal/mutants/snapshot/criteria-upper-bound.mutant
//
//	Rule: the upper bound on the sequence number is inclusive
//	File: snapshot/criteria.go
//	Test: ./snapshot -run TestCriteriaMatches
//	--- old
//	m.SequenceNr <= c.MaxSequenceNr
//	--- new
//	m.SequenceNr < c.MaxSequenceNr
//
// Rule says what must hold and no longer does. File is the one file that is
// changed, from the root of the module. Test is the rest of a go test command:
// the package, -run with the tests that must fail, and flags such as -race if
// the fault needs them. Old is a piece of the file that occurs in it exactly
// once; new takes its place, and may be empty. White space at both ends of the
// pieces does not count. A mutant may have several pairs.
//
// make mutants runs them, MUTANTS=snapshot those whose name begins so:
//
//	mutant                          outcome  seconds
//	snapshot/criteria-upper-bound   caught       1.2
//
// For each one it writes the changed copy of the file to a temporary directory
// and runs the test with go test -overlay, so the checkout is never touched.
// The test has to pass without the change and to fail with it: not to compile
// doesn't count. A test that hangs is stopped after its time-out, and that
// counts.
//
// That every mutant still fits the source is a test of this package: whoever
// changes a line that a mutant changes finds out at once.
package mutants
