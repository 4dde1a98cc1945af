// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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

// Injected is a fault that was injected into a Faulty journal. Its methods are
// safe for concurrent use.
type Injected struct {
	fault  Fault
	owner  *Faulty
	struck chan struct{}

	// Guarded by owner.mu.
	gate               chan struct{} // blocks stalled calls until closed
	seen, hits, landed int
}

// lateCall is something that was answered and is not yet done.
type lateCall struct {
	from *Injected
	// calls counts down the later calls until it lands by itself; it is 0 if
	// only a release lets it.
	calls int
	// land does it and returns how many writes were stored.
	land func() int
}

// Struck returns a channel that is closed when the fault strikes for the first
// time: from then on a release reaches what it holds.
func (i *Injected) Struck() <-chan struct{} { return i.struck }

// Hits returns how often the fault has struck.
func (i *Injected) Hits() int {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	return i.hits
}

// Landed returns how many late writes the inner journal has stored.
func (i *Injected) Landed() int {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	return i.landed
}

// Release lets the calls go on that this fault stalls now, and does what it
// made late. It returns when the late writes have landed or were refused. What
// the fault strikes afterwards is held again.
func (i *Injected) Release() { i.owner.release(i) }

// matches counts a call that the fault may strike and reports whether it does.
// It is called with the owner's lock held.
func (i *Injected) matches(c Call) bool {
	times := cmp.Or(i.fault.Times, 1)
	if times > 0 && i.hits == times || !i.fault.matches(c) {
		return false
	}
	i.seen++
	return i.seen > i.fault.Skip
}

// hit notes that the fault has struck. It is called with the owner's lock held.
func (i *Injected) hit() {
	i.hits++
	if i.hits == 1 {
		close(i.struck)
	}
}

func (i *Injected) open() {
	close(i.gate)
	i.gate = make(chan struct{})
}

func (i *Injected) err() error {
	if i.fault.Err != nil {
		return i.fault.Err
	}
	return ErrInjected
}

// strike is one blow of a fault.
type strike struct {
	*Injected
	gate <-chan struct{} // the one that was closed when it struck
}

// fire fails a call that is no append, or stalls it.
func (s *strike) fire(ctx context.Context) error {
	if s.fault.Do == Stall {
		return s.wait(ctx)
	}
	return s.err()
}

func (s *strike) wait(ctx context.Context) error {
	select {
	case <-s.gate:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("journaltest: stalled: %w", context.Cause(ctx))
	}
}
