// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"cmp"
	"context"
	"fmt"
)

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
