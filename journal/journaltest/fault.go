// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"errors"

	"github.com/refold-io/refold/internal/testkit/fault"
	"github.com/refold-io/refold/journal"
)

// ErrInjected is the error that a fault reports unless it names another.
var ErrInjected = errors.New("journaltest: injected fault")

// Op is a method of a journal that a fault may strike.
type Op int

const (
	// OpAppend is a write of an Append call. A fault affects single writes; the other writes of the
	// call continue.
	OpAppend Op = iota
	// OpReplay is a Replay, when its loop begins.
	OpReplay
	// OpHighest is a HighestSequenceNr.
	OpHighest
	// OpDelete is a DeleteTo.
	OpDelete

	opCount
)

// Effect is the action of a fault.
type Effect int

const (
	// Lose fails without doing anything. To the writer of an append the outcome is unknown; in
	// truth the write is not stored and never will be.
	Lose Effect = iota
	// Store executes the call and then returns an error: the outcome is unknown to the caller, but
	// the write is stored. Replay and HighestSequenceNr fail.
	Store
	// Late fails immediately and executes the call later, when the fault is released or
	// Fault.AfterCalls is reached. The outcome is unknown until then. The writes are passed on in
	// one Append call of the inner journal, which may reject them by then. Replay and
	// HighestSequenceNr fail.
	Late
	// Stall blocks until the fault is released and then executes the call. If the context ends
	// first, the call fails with its cause and is not executed.
	Stall
	// Reject fails a write with a *journal.RejectedError whose reason is Fault.Err. Other calls
	// fail.
	Reject
	// Conflict fails a write with a *journal.ConflictError without a conflict. Other calls fail.
	Conflict
	// NotSent refuses a write with an error that matches journal.ErrNotSent and Fault.Err. Anything
	// but a write just fails.
	NotSent
)

// Fault describes an injected failure. The zero value loses the next write.
type Fault struct {
	// Op is the method to strike. Defaults to OpAppend.
	Op Op
	// ID limits the fault to one persistence ID. Defaults to all.
	ID string
	// When limits the fault further. It runs under a lock and must not call the journal. Defaults
	// to always.
	When func(Call) bool
	// Skip is the number of matching calls that succeed first. Defaults to 0.
	Skip int
	// Times is how often the fault strikes; below 0 it strikes until Reset. Defaults to 1.
	Times int

	// Do is the effect. Defaults to Lose.
	Do Effect
	// Err is the error reported. Defaults to ErrInjected.
	Err error
	// WholeCall affects all writes of the Append call that contains the matching one, like a lost
	// connection. Otherwise the fault affects the matching write and the later writes of the same
	// ID in that call.
	WholeCall bool
	// AfterEvents is the number of events that an affected replay yields before it fails, at most
	// all of them. Defaults to 0.
	AfterEvents int
	// AfterCalls executes late calls without a release, directly before the AfterCalls-th later
	// call of any method. The default 0 requires a release.
	AfterCalls int
}

// Call is the argument of Fault.When.
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

// Injected is a fault that was injected into a Faulty journal. Its methods are safe for concurrent
// use.
type Injected struct {
	fault Fault
	owner *Faulty
	state *fault.Fault[Call, *Injected]
	// landed is guarded by owner.faults.Mu.
	landed int
}

// lateCall is a call that has returned and is not yet executed.
type lateCall struct {
	from *Injected
	// calls counts down the later calls until the execution; 0 requires a release.
	calls int
	// land executes the call and returns how many writes were stored.
	land func() int
}

// Struck returns a channel that is closed when the fault takes effect for the first time. From then
// on Release has an effect.
func (i *Injected) Struck() <-chan struct{} { return i.state.Struck() }

// Landed returns how many late writes the inner journal has stored.
func (i *Injected) Landed() int {
	i.owner.faults.Mu.Lock()
	defer i.owner.faults.Mu.Unlock()
	return i.landed
}

// Release continues the calls that this fault stalls, and executes its late calls. It returns when
// the late writes were stored or rejected. Calls that the fault affects afterwards are blocked
// again.
func (i *Injected) Release() {
	i.owner.faults.Mu.Lock()
	i.state.Open()
	due := i.owner.take(func(l *lateCall) bool { return l.from == i })
	i.owner.faults.Mu.Unlock()
	i.owner.land(due)
}

// strike is one effect of a fault.
type strike struct {
	*Injected
	gate <-chan struct{} // the one that was closed when it struck
}

// fire fails a call that is no append, or stalls it.
func (s *strike) fire(ctx context.Context) error {
	if s.fault.Do == Stall {
		return fault.Wait(ctx, s.gate)
	}
	return s.fault.Err
}
