// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/refold-io/refold/internal/testkit/fault"
	"github.com/refold-io/refold/journal"
)

// Faulty is a journal that forwards all calls to another one and injects faults. It is safe for
// concurrent use.
//
//	f := journaltest.NewFaulty(inmem.NewJournal())
//	f.Inject(journaltest.Fault{Do: journaltest.Reject, ID: "account|42"})
//
// With any faults, Faulty satisfies the contract of journal.Journal if the inner journal does. The
// exception is a Fault.Err that matches an error of another outcome. journal.As finds the optional
// interfaces of the inner journal, which have no faults.
type Faulty struct {
	inner journal.Journal

	faults fault.Set[Call, *Injected]
	// Guarded by faults.Mu.
	late   []*lateCall
	calls  [opCount]int
	writes int
}

var (
	_ journal.Journal = (*Faulty)(nil)
	_ journal.Wrapper = (*Faulty)(nil)
)

// NewFaulty returns a Faulty that forwards to inner, without faults.
func NewFaulty(inner journal.Journal) *Faulty { return &Faulty{inner: inner} }

// Unwrap returns the inner journal.
func (f *Faulty) Unwrap() journal.Journal { return f.inner }

// Inject adds a fault. At most one fault strikes a call: the first matching fault in the order of
// injection.
func (f *Faulty) Inject(fault Fault) *Injected {
	fault.Err = cmp.Or(fault.Err, ErrInjected)
	i := &Injected{fault: fault, owner: f}
	i.state = f.faults.Add(i, fault.matches, fault.Skip, fault.Times)
	return i
}

// Release releases all faults; see Injected.Release.
func (f *Faulty) Release() {
	f.faults.Mu.Lock()
	f.faults.Open()
	due := f.take(func(*lateCall) bool { return true })
	f.faults.Mu.Unlock()
	f.land(due)
}

// Reset removes all faults. Stalled calls continue; late calls are never executed.
func (f *Faulty) Reset() {
	f.faults.Mu.Lock()
	defer f.faults.Mu.Unlock()
	f.faults.Reset()
	f.late = nil
}

// Calls returns the number of calls of a method, affected or not. A replay is counted when its loop
// begins.
func (f *Faulty) Calls(op Op) int {
	f.faults.Mu.Lock()
	defer f.faults.Mu.Unlock()
	return f.calls[op]
}

// Writes returns the number of writes in all Append calls, affected or not.
func (f *Faulty) Writes() int {
	f.faults.Mu.Lock()
	defer f.faults.Mu.Unlock()
	return f.writes
}

// Replay implements journal.Journal.
func (f *Faulty) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		s := f.begin(Call{Op: OpReplay, ID: id, From: from, To: to})
		events := f.inner.Replay(ctx, id, from, to)
		if s == nil {
			events(yield)
			return
		}
		n := 0
		for e, err := range events {
			if n == s.fault.AfterEvents && err == nil {
				if failed := s.fire(ctx); failed != nil {
					yield(journal.Event{}, failed)
					return
				}
			}
			if n++; !yield(e, err) || err != nil {
				return
			}
		}
		if n <= s.fault.AfterEvents { // the replay ended before the fault was due
			if failed := s.fire(ctx); failed != nil {
				yield(journal.Event{}, failed)
			}
		}
	}
}

// HighestSequenceNr implements journal.Journal.
func (f *Faulty) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	if s := f.begin(Call{Op: OpHighest, ID: id}); s != nil {
		if err := s.fire(ctx); err != nil {
			return 0, err
		}
	}
	return f.inner.HighestSequenceNr(ctx, id)
}

// DeleteTo implements journal.Journal.
func (f *Faulty) DeleteTo(ctx context.Context, id string, to uint64) error {
	s := f.begin(Call{Op: OpDelete, ID: id, To: to})
	if s == nil {
		return f.inner.DeleteTo(ctx, id, to)
	}
	switch s.fault.Do {
	case Store:
		if err := f.inner.DeleteTo(ctx, id, to); err != nil {
			return err
		}
	case Late:
		f.faults.Mu.Lock()
		defer f.faults.Mu.Unlock()
		f.postpone(s.Injected, func() int {
			_ = f.inner.DeleteTo(context.WithoutCancel(ctx), id, to) // no caller waits for the outcome
			return 0
		})
	case Stall:
		if err := s.fire(ctx); err != nil {
			return err
		}
		return f.inner.DeleteTo(ctx, id, to)
	case Lose, Reject, Conflict, NotSent:
	}
	return s.fault.Err
}

// Close implements journal.Journal. It resets the faults and closes the inner journal.
func (f *Faulty) Close() error {
	f.Reset()
	return f.inner.Close()
}

// begin counts a call other than Append, executes the late calls that are due, and returns the
// fault of the call.
func (f *Faulty) begin(c Call) *strike {
	f.count(c.Op, 0)
	f.faults.Mu.Lock()
	defer f.faults.Mu.Unlock()
	return f.strike(c)
}

// count counts a call and executes the late calls that are due before it.
func (f *Faulty) count(op Op, writes int) {
	f.faults.Mu.Lock()
	f.calls[op]++
	f.writes += writes
	due := f.take(func(l *lateCall) bool {
		if l.calls == 0 {
			return false
		}
		l.calls--
		return l.calls == 0
	})
	f.faults.Mu.Unlock()
	f.land(due)
}

// strike returns the effect of the first matching fault, nil if none matches. The lock is held.
func (f *Faulty) strike(c Call) *strike {
	if struck, gate := f.faults.Strike(c); struck != nil {
		return &strike{Injected: struck.Data, gate: gate}
	}
	return nil
}

// postpone records a late call. The lock is held.
func (f *Faulty) postpone(from *Injected, land func() int) {
	f.late = append(f.late, &lateCall{from: from, calls: from.fault.AfterCalls, land: land})
}

// take removes the late calls that are due. The lock is held.
func (f *Faulty) take(isDue func(*lateCall) bool) (due []*lateCall) {
	f.late = slices.DeleteFunc(f.late, func(l *lateCall) bool {
		if !isDue(l) {
			return false
		}
		due = append(due, l)
		return true
	})
	return due
}

// land executes late calls in the order in which they were made.
func (f *Faulty) land(due []*lateCall) {
	for _, l := range due {
		n := l.land()
		f.faults.Mu.Lock()
		l.from.landed += n
		f.faults.Mu.Unlock()
	}
}

// Append implements journal.Journal. Later writes of an ID have the outcome of the affected write,
// as in a journal that stores them in order.
func (f *Faulty) Append(ctx context.Context, writes []journal.Write) []error {
	f.count(OpAppend, len(writes))
	struck := f.plan(ctx, writes)
	if struck == nil {
		return f.inner.Append(ctx, writes)
	}
	for _, s := range struck {
		if s != nil && s.fault.Do == Stall {
			if err := s.fire(ctx); err != nil {
				return slices.Repeat([]error{err}, len(writes))
			}
		}
	}
	errs := f.pass(ctx, writes, struck)
	failed := make(map[string]bool) // IDs with a failed write
	for i, s := range struck {
		if s != nil {
			errs[i] = s.outcome(&writes[i], errs[i], failed[writes[i].ID])
		}
		if errs[i] != nil {
			failed[writes[i].ID] = true
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return errs
}

// plan returns the effect on each write, nil if there is none, and postpones late writes.
func (f *Faulty) plan(ctx context.Context, writes []journal.Write) []*strike {
	f.faults.Mu.Lock()
	defer f.faults.Mu.Unlock()
	struck := make([]*strike, len(writes))
	fate := make(map[string]*strike)
	for i, w := range writes {
		s := fate[w.ID]
		if s == nil {
			s = f.strike(Call{Op: OpAppend, ID: w.ID, Write: w})
		}
		if s == nil {
			continue
		}
		fate[w.ID], struck[i] = s, s
		if s.fault.WholeCall {
			struck = slices.Repeat([]*strike{s}, len(writes))
			break
		}
	}
	if len(fate) == 0 {
		return nil
	}
	for i, s := range struck {
		if s == nil || s.fault.Do != Late || slices.Contains(struck[:i], s) {
			continue
		}
		late := pick(writes, func(k int) bool { return struck[k] == s })
		f.postpone(s.Injected, func() int {
			return stored(f.inner.Append(context.WithoutCancel(ctx), late), len(late))
		})
	}
	return struck
}

// pass forwards the writes that reach the inner journal and returns one slot for each write.
func (f *Faulty) pass(ctx context.Context, writes []journal.Write, struck []*strike) []error {
	passes := func(i int) bool {
		return struck[i] == nil || struck[i].fault.Do == Store || struck[i].fault.Do == Stall
	}
	errs := make([]error, len(writes))
	through := pick(writes, passes)
	if len(through) == 0 {
		return errs
	}
	inner := f.inner.Append(ctx, through)
	for i := range writes {
		if inner != nil && passes(i) {
			errs[i], inner = inner[0], inner[1:]
		}
	}
	return errs
}

// outcome returns the result of an affected write. inner is the result of the inner journal if it
// was called. skip is set if an earlier write of the ID failed.
func (s *strike) outcome(w *journal.Write, inner error, skip bool) error {
	switch do := s.fault.Do; {
	case do == Lose, do == Store, do == Late:
		return s.fault.Err
	case do == Stall:
		return inner
	case skip:
		return journal.ErrSkipped
	case do == Reject:
		return &journal.RejectedError{ID: w.ID, Reason: s.fault.Err}
	case do == Conflict:
		return &journal.ConflictError{ID: w.ID, Expected: w.Expect}
	default:
		return fmt.Errorf("%w: %w", journal.ErrNotSent, s.fault.Err)
	}
}

// pick copies some of the writes, including their slices of events, which belong to the caller
// again after Append returns.
func pick(writes []journal.Write, picked func(i int) bool) []journal.Write {
	var out []journal.Write
	for i, w := range writes {
		if picked(i) {
			w.Events = slices.Clone(w.Events)
			out = append(out, w)
		}
	}
	return out
}

// stored counts the writes that an Append call has stored.
func stored(errs []error, writes int) int {
	for _, err := range errs {
		if err != nil {
			writes--
		}
	}
	return writes
}

// ErrInjected is the error of a fault without Fault.Err.
var ErrInjected = errors.New("journaltest: injected fault")

// Op is a method of a journal that a fault may strike.
type Op int

const (
	// OpAppend is a write of an Append call. A fault affects single writes; the inner journal
	// receives the other writes of the call.
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
	// Lose fails the call without executing it. The caller of Append receives an unknown outcome,
	// but the write is not stored and never will be.
	Lose Effect = iota
	// Store executes the call and then returns an error. The caller receives an unknown outcome,
	// but the write is stored. Replay and HighestSequenceNr fail.
	Store
	// Late fails immediately and executes the call later, when the fault is released or
	// Fault.AfterCalls is reached. The outcome is unknown until then. The inner journal receives
	// the writes in one Append call and may reject them. Replay and HighestSequenceNr fail.
	Late
	// Stall blocks until the fault is released and then executes the call. If the context ends
	// first, the call fails with its cause and is not executed.
	Stall
	// Reject fails a write with a *journal.RejectedError whose reason is Fault.Err. Other calls
	// fail.
	Reject
	// Conflict fails a write with an untrue *journal.ConflictError. Other calls fail.
	Conflict
	// NotSent fails a write with an error that matches journal.ErrNotSent and Fault.Err. Other
	// calls fail.
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
// the late writes were stored or rejected. Calls that the fault affects after Release are stalled
// again.
func (i *Injected) Release() {
	i.owner.faults.Mu.Lock()
	i.state.Open()
	due := i.owner.take(func(l *lateCall) bool { return l.from == i })
	i.owner.faults.Mu.Unlock()
	i.owner.land(due)
}

type strike struct {
	*Injected
	gate <-chan struct{} // the gate of the fault when it struck
}

// fire fails or stalls a call other than Append.
func (s *strike) fire(ctx context.Context) error {
	if s.fault.Do == Stall {
		return fault.Wait(ctx, s.gate)
	}
	return s.fault.Err
}
