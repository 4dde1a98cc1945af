// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import "fmt"

// Problem is something that is wrong with the stored data of one persistence
// ID.
type Problem struct {
	// ID is the persistence ID.
	ID string
	// SequenceNr is the number of the record or snapshot that is at fault, 0 if
	// it is none in particular.
	SequenceNr uint64
	// Err says what is wrong.
	Err error
}

// String returns the problem as one line.
func (p Problem) String() string {
	if p.ID == "" {
		return p.Err.Error()
	}
	if p.SequenceNr == 0 {
		return fmt.Sprintf("%q: %v", p.ID, p.Err)
	}
	return fmt.Sprintf("%q at %d: %v", p.ID, p.SequenceNr, p.Err)
}

// Error is String.
func (p Problem) Error() string { return p.String() }

// Unwrap returns what is wrong.
func (p Problem) Unwrap() error { return p.Err }

// Report is what Verify has looked at and found.
type Report struct {
	// IDs, Records and Snapshots are how many were looked at. Fences are among
	// the records.
	IDs, Records, Fences, Snapshots uint64
	// Unchecked is how many payloads could not be checked: they are in a format
	// of the program that wrote them, whose types are not linked in.
	Unchecked uint64
	// Digest is that of all that was looked at, if it was asked for.
	Digest Digest
	// Problems are what was found, up to VerifyOptions.MaxProblems, in the order
	// of the IDs.
	Problems []Problem
	// Omitted is how many more problems there are.
	Omitted uint64
}

// Found returns how many problems there are, those included that the report
// does not list.
func (r *Report) Found() uint64 { return uint64(len(r.Problems)) + r.Omitted }
