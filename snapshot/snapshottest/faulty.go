// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/refold-io/refold/snapshot"
)

// ErrInjected is the error that a fault reports unless it names another.
var ErrInjected = errors.New("snapshottest: injected fault")

// Op is a method of a store that a fault may strike.
type Op int

// The methods.
const (
	OpSave Op = iota
	OpLoad
	OpList
	OpDelete

	opCount
)

// Effect is the action of a fault.
type Effect int

const (
	// Lose fails without doing anything.
	Lose Effect = iota
	// Store executes the call and then returns an error. Load and List fail.
	Store
	// Stall blocks until the fault is released and then executes the call. If the context ends
	// first, the call fails with its cause and is not executed.
	Stall
)

// Fault describes an injected failure. The zero value loses the next save.
type Fault struct {
	// Op is the method to strike. Defaults to OpSave.
	Op Op
	// ID limits the fault to one persistence ID. Defaults to all.
	ID string
	// When limits the fault further. It runs under a lock and must not call the store. Defaults to
	// always.
	When func(Call) bool
	// Skip is the number of matching calls that succeed first. Defaults to 0.
	Skip int
	// Times is how often the fault strikes; below 0 it strikes until Reset. Defaults to 1.
	Times int
	// Do is the effect. Defaults to Lose.
	Do Effect
	// Err is the error reported. Defaults to ErrInjected.
	Err error
}

// Call is the argument of Fault.When.
type Call struct {
	Op Op
	ID string
	// Snapshot is set for OpSave.
	Snapshot snapshot.Snapshot
	// Criteria is set for the others.
	Criteria snapshot.Criteria
}

// Faulty is a store that forwards all calls to another one and injects faults. It is safe for
// concurrent use.
//
//	f := snapshottest.NewFaulty(new(inmem.SnapshotStore))
//	f.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, ID: "account|42"})
type Faulty struct {
	inner snapshot.Store

	mu     sync.Mutex
	faults []*Injected
	calls  [opCount]int
}

var _ snapshot.Store = (*Faulty)(nil)

// Injected is a fault that was injected into a Faulty store. Its methods are safe for concurrent
// use.
type Injected struct {
	fault  Fault
	owner  *Faulty
	struck chan struct{}

	// Guarded by owner.mu.
	gate       chan struct{} // blocks stalled calls until closed
	seen, hits int
}

// NewFaulty returns a store in front of inner, without faults.
func NewFaulty(inner snapshot.Store) *Faulty { return &Faulty{inner: inner} }

// Inject adds a fault. A call is struck by one fault at most: the first that matches, in the order
// of injection.
func (f *Faulty) Inject(fault Fault) *Injected {
	if fault.Times == 0 {
		fault.Times = 1
	}
	if fault.Err == nil {
		fault.Err = ErrInjected
	}
	i := &Injected{fault: fault, owner: f, struck: make(chan struct{}), gate: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, i)
	return i
}

// Reset removes all faults. Stalled calls continue.
func (f *Faulty) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.faults {
		i.open()
	}
	f.faults = nil
}

// Calls returns the number of calls of a method, affected or not. A list is counted when its loop
// begins.
func (f *Faulty) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Struck returns a channel that is closed when the fault takes effect for the first time. From then
// on Release has an effect.
func (i *Injected) Struck() <-chan struct{} { return i.struck }

// Hits returns how often the fault has struck.
func (i *Injected) Hits() int {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	return i.hits
}

// Release continues the calls that this fault stalls. Calls that it affects afterwards are blocked
// again.
func (i *Injected) Release() {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	i.open()
}

func (i *Injected) open() {
	close(i.gate)
	i.gate = make(chan struct{})
}

// Save implements snapshot.Store.
func (f *Faulty) Save(ctx context.Context, s snapshot.Snapshot) error {
	return f.do(ctx, Call{Op: OpSave, ID: s.ID, Snapshot: s}, func() error { return f.inner.Save(ctx, s) })
}

// Load implements snapshot.Store.
func (f *Faulty) Load(ctx context.Context, id string, c snapshot.Criteria) (s snapshot.Snapshot, err error) {
	err = f.do(ctx, Call{Op: OpLoad, ID: id, Criteria: c}, func() (err error) {
		s, err = f.inner.Load(ctx, id, c)
		return err
	})
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	return s, nil
}

// List implements snapshot.Store.
func (f *Faulty) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return func(yield func(snapshot.Metadata, error) bool) {
		if err := f.do(ctx, Call{Op: OpList, ID: id, Criteria: c}, func() error { return nil }); err != nil {
			yield(snapshot.Metadata{}, err)
			return
		}
		f.inner.List(ctx, id, c)(yield)
	}
}

// Delete implements snapshot.Store.
func (f *Faulty) Delete(ctx context.Context, id string, c snapshot.Criteria) error {
	return f.do(ctx, Call{Op: OpDelete, ID: id, Criteria: c}, func() error { return f.inner.Delete(ctx, id, c) })
}

// Close closes the inner store.
func (f *Faulty) Close() error { return f.inner.Close() }

// do makes a call with the effect of a fault.
func (f *Faulty) do(ctx context.Context, c Call, call func() error) error {
	fault, gate := f.strike(c)
	if fault == nil {
		return call()
	}
	switch fault.Do {
	case Store:
		if err := call(); err != nil {
			return err
		}
	case Stall:
		select {
		case <-gate:
			return call()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case Lose:
	}
	return fault.Err
}

// strike counts a call and returns the fault that affects it, if any, with the channel that a
// stalled call waits for.
func (f *Faulty) strike(c Call) (*Fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[c.Op]++
	for _, i := range f.faults {
		if !i.matches(c) {
			continue
		}
		if i.hits++; i.hits == 1 {
			close(i.struck)
		}
		return &i.fault, i.gate
	}
	return nil, nil
}

// matches counts a call that the fault may strike and reports whether it does.
func (i *Injected) matches(c Call) bool {
	fault := &i.fault
	if i.hits == fault.Times || c.Op != fault.Op || fault.ID != "" && c.ID != fault.ID || fault.When != nil && !fault.When(c) {
		return false
	}
	i.seen++
	return i.seen > fault.Skip
}
