// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"errors"

	"github.com/refold-io/refold/journal"
)

// ErrInjected is the error that a fault reports unless it names another.
var ErrInjected = errors.New("journaltest: injected fault")

// Op is a method of a journal that a fault may strike.
type Op int

const (
	// OpAppend is a write of an Append call: a fault strikes single writes,
	// and their neighbours in the call go on.
	OpAppend Op = iota
	// OpReplay is a Replay, when its loop begins.
	OpReplay
	// OpHighest is a HighestSequenceNr.
	OpHighest
	// OpDelete is a DeleteTo.
	OpDelete

	opCount
)

// Effect is what a fault does to what it strikes.
type Effect int

const (
	// Lose fails without doing anything. To the writer of an append the outcome
	// is unknown; in truth the write is not stored and never will be.
	Lose Effect = iota
	// Store does what was asked and fails all the same: the outcome is unknown,
	// in truth the write is stored. A replay or a read of the highest number
	// just fails.
	Store
	// Late fails at once, and what was asked is done later, when it is released
	// or Fault.AfterCalls says so: the outcome is unknown until then. The writes
	// land in one Append call of the inner journal, which may refuse them by
	// then. A replay or a read of the highest number just fails.
	Late
	// Stall blocks until it is released, and then does what was asked. A context
	// that ends first fails the call with its cause and nothing is done.
	Stall
	// Reject refuses a write with a *journal.RejectedError whose reason is
	// Fault.Err. Anything but a write just fails.
	Reject
	// Conflict refuses a write with a *journal.ConflictError, though nobody
	// else wrote. Anything but a write just fails.
	Conflict
	// NotSent refuses a write with an error that matches journal.ErrNotSent and
	// Fault.Err. Anything but a write just fails.
	NotSent
)

// Fault says what goes wrong, and when. The zero value loses the next write.
type Fault struct {
	// Op is the method to strike. Defaults to OpAppend.
	Op Op
	// ID limits the fault to one persistence ID. Defaults to all.
	ID string
	// When limits the fault further. It runs under a lock and must not call the
	// journal. Defaults to always.
	When func(Call) bool
	// Skip is how many matching calls go by unharmed first. Defaults to 0.
	Skip int
	// Times is how often the fault strikes; below 0 it strikes until Reset.
	// Defaults to 1.
	Times int

	// Do is what happens. Defaults to Lose.
	Do Effect
	// Err is the error reported. Defaults to ErrInjected.
	Err error
	// WholeCall strikes all writes of the Append call that holds the matching
	// one, as a lost connection does. Without it the matching write is struck,
	// and with it the later writes of the same ID in that call.
	WholeCall bool
	// AfterEvents is how many events a struck replay yields first, or all of
	// them if there are fewer. Defaults to 0.
	AfterEvents int
	// AfterCalls lets what is Late land by itself, right before the AfterCalls-th
	// later call of any method is passed on. At 0, the default, only a release
	// does.
	AfterCalls int
}

// Call is what Fault.When is asked about.
type Call struct {
	Op Op
	ID string
	// Write is set for OpAppend; it must not be kept.
	Write journal.Write
	// From and To are the bounds of a replay; To is the bound of a deletion.
	From, To uint64
}

// matches reports whether the fault strikes such a call at all.
func (f *Fault) matches(c Call) bool {
	return f.Op == c.Op && (f.ID == "" || f.ID == c.ID) && (f.When == nil || f.When(c))
}
