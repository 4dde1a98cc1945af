// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/refold-io/refold/internal/testkit/fault"
	"github.com/refold-io/refold/snapshot"
)

// ErrInjected is the error of a fault without Fault.Err.
var ErrInjected = errors.New("snapshottest: injected fault")

// Op is a method of a store that a fault may strike.
type Op int

// The methods.
const (
	OpSave Op = iota
	OpLoad
	OpList
	OpDelete
)

// Effect is the action of a fault.
type Effect int

const (
	// Lose fails the call without executing it.
	Lose Effect = iota
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
	// Criteria is set for the other methods.
	Criteria snapshot.Criteria
}

// Faulty is a store that forwards all calls to another one and injects faults. It is safe for
// concurrent use.
//
//	f := snapshottest.NewFaulty(new(inmem.SnapshotStore))
//	f.Inject(snapshottest.Fault{Op: snapshottest.OpLoad, ID: "account|42"})
type Faulty struct {
	inner  snapshot.Store
	faults fault.Set[Call, *Injected]
}

var _ snapshot.Store = (*Faulty)(nil)

// Injected is a fault that was injected into a Faulty store. Its methods are safe for concurrent
// use.
type Injected struct {
	fault Fault
	owner *Faulty
	state *fault.Fault[Call, *Injected]
}

// NewFaulty returns a Faulty that forwards to inner, without faults.
func NewFaulty(inner snapshot.Store) *Faulty { return &Faulty{inner: inner} }

// Inject adds a fault. At most one fault strikes a call: the first matching fault in the order of
// injection.
func (f *Faulty) Inject(fault Fault) *Injected {
	fault.Err = cmp.Or(fault.Err, ErrInjected)
	i := &Injected{fault: fault, owner: f}
	i.state = f.faults.Add(i, fault.matches, fault.Skip, fault.Times)
	return i
}

func (f *Fault) matches(c Call) bool {
	return c.Op == f.Op && (f.ID == "" || c.ID == f.ID) && (f.When == nil || f.When(c))
}

// Reset removes all faults. Stalled calls continue.
func (f *Faulty) Reset() {
	f.faults.Mu.Lock()
	defer f.faults.Mu.Unlock()
	f.faults.Reset()
}

// Struck returns a channel that is closed when the fault takes effect for the first time. From then
// on Release has an effect.
func (i *Injected) Struck() <-chan struct{} { return i.state.Struck() }

// Release continues the calls that this fault stalls. Calls that the fault affects after Release
// are stalled again.
func (i *Injected) Release() {
	i.owner.faults.Mu.Lock()
	defer i.owner.faults.Mu.Unlock()
	i.state.Open()
}

// Local implements snapshot.Local.
func (f *Faulty) Local() bool {
	l, ok := f.inner.(snapshot.Local)
	return ok && l.Local()
}

// Save implements snapshot.Store.
func (f *Faulty) Save(ctx context.Context, s snapshot.Snapshot) error {
	if err := f.strike(ctx, Call{Op: OpSave, ID: s.ID, Snapshot: s}); err != nil {
		return err
	}
	return f.inner.Save(ctx, s)
}

// Load implements snapshot.Store.
func (f *Faulty) Load(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	if err := f.strike(ctx, Call{Op: OpLoad, ID: id, Criteria: c}); err != nil {
		return snapshot.Snapshot{}, err
	}
	return f.inner.Load(ctx, id, c)
}

// List implements snapshot.Store. A fault strikes when its loop begins.
func (f *Faulty) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return func(yield func(snapshot.Metadata, error) bool) {
		if err := f.strike(ctx, Call{Op: OpList, ID: id, Criteria: c}); err != nil {
			yield(snapshot.Metadata{}, err)
			return
		}
		f.inner.List(ctx, id, c)(yield)
	}
}

// Delete implements snapshot.Store.
func (f *Faulty) Delete(ctx context.Context, id string, c snapshot.Criteria) error {
	if err := f.strike(ctx, Call{Op: OpDelete, ID: id, Criteria: c}); err != nil {
		return err
	}
	return f.inner.Delete(ctx, id, c)
}

// Close closes the inner store.
func (f *Faulty) Close() error { return f.inner.Close() }

// strike applies the fault of a call: it stalls the call or returns an error.
func (f *Faulty) strike(ctx context.Context, c Call) error {
	f.faults.Mu.Lock()
	struck, gate := f.faults.Strike(c)
	f.faults.Mu.Unlock()
	switch {
	case struck == nil:
		return nil
	case struck.Data.fault.Do == Stall:
		return fault.Wait(ctx, gate)
	}
	return struck.Data.fault.Err
}
