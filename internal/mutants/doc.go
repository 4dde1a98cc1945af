// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package mutants plants faults in the source code and requires a test to fail.
//
// A mutant is a file below this directory, in a folder that is named after the package that it
// changes:
//
//	internal/mutants/snapshot/criteria-upper-bound.mutant
//
//	Rule: the upper bound on the sequence number is inclusive
//	Package: snapshot
//	Test: ./snapshot -run TestCriteriaMatches
//	--- old
//	m.SequenceNr <= c.MaxSequenceNr
//	--- new
//	m.SequenceNr < c.MaxSequenceNr
//
// Rule states the rule that the fault breaks. Package is the directory that is changed, from the
// root of the module. Test is the rest of a go test command: the package, -run with the tests that
// must fail, and further flags such as -race. Old is a piece of the package's code, and new
// replaces that piece. New may be empty. A mutant may have several pairs of old and new; each pair
// changes another piece.
//
// # How a piece is found
//
// Renamed identifiers, moved code and changed comments do not break a mutant, because old is not
// compared as text. Old and all files of the package except its tests are split into Go tokens.
// Comments, automatic semicolons and the comma before a closing bracket are dropped. Old matches a
// sequence of tokens if
//
//   - keywords, operators, numbers and predeclared identifiers (nil, len, ...) are equal,
//   - each other identifier of old stands for one identifier of the sequence, the same one
//     wherever it occurs (an identifier after a dot and one without a dot may stand for different
//     identifiers),
//   - each string stands for a string.
//
// The score of a match is the number of identifiers and strings that are equal; an identifier of
// one letter counts a quarter. The match with the highest score is taken. It is an error if two
// matches have the highest score, or if less than 30 percent of old is equal. An identifier stands
// for the same identifier in all pairs of a mutant. Matches in one file are preferred. The
// identifiers of new are replaced in the same way as those of old.
//
// A piece that does not match as Go code, such as SQL, is searched as text in string literals and
// in files of other languages. The piece must occur exactly once in these texts. White space may
// differ.
//
// # Commands
//
// make mutants runs all mutants, and MUTANTS=snapshot those with names that begin with "snapshot":
//
//	mutant                          outcome  seconds
//	snapshot/criteria-upper-bound   caught       1.2
//
// For each mutant, the command writes the changed file to a temporary directory and runs the test
// with go test -overlay. It never changes the checkout. The test must pass without the fault and
// fail with it. A compiler error does not count as a failure of the test. A test that exceeds its
// timeout is stopped and counts as failed.
//
// A test of this package checks that each mutant matches the source code, and that each -run names
// existing tests. Adapt the mutants to renamed code with
//
//	go run ./internal/mutants/run -rewrite [name prefix ...]
package mutants
