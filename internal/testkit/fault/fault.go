// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault selects the calls of a test double that fail or stall.
package fault

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// Set holds the injected faults of a double. C describes a call, F a fault. Mu guards all faults.
type Set[C, F any] struct {
	Mu     sync.Mutex
	faults []*Fault[C, F]
}

// Fault is an injected fault.
type Fault[C, F any] struct {
	Data F

	matches     func(C) bool
	skip, times int
	struck      chan struct{}
	gate        chan struct{} // blocks stalled calls until closed
	seen, hits  int
}

// Add adds a fault. The fault skips the first skip matching calls and strikes the next times calls.
// If times is 0, it strikes one call; if times is negative, it strikes all following calls.
func (s *Set[C, F]) Add(data F, matches func(C) bool, skip, times int) *Fault[C, F] {
	f := &Fault[C, F]{Data: data, matches: matches, skip: skip, times: cmp.Or(times, 1), struck: make(chan struct{}), gate: make(chan struct{})}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.faults = append(s.faults, f)
	return f
}

// Strike returns the first fault that strikes a call, or nil, and the gate at which a stalled call
// waits. The caller holds Mu.
func (s *Set[C, F]) Strike(call C) (struck *Fault[C, F], gate <-chan struct{}) {
	for _, f := range s.faults {
		if f.hits == f.times || !f.matches(call) {
			continue
		}
		if f.seen++; f.seen <= f.skip {
			continue
		}
		if f.hits++; f.hits == 1 {
			close(f.struck)
		}
		return f, f.gate
	}
	return nil, nil
}

// Open continues the stalled calls of all faults. The caller holds Mu.
func (s *Set[C, F]) Open() {
	for _, f := range s.faults {
		f.Open()
	}
}

// Reset removes all faults. Stalled calls continue. The caller holds Mu.
func (s *Set[C, F]) Reset() {
	s.Open()
	s.faults = nil
}

// Struck returns a channel that is closed when the fault strikes for the first time.
func (f *Fault[C, F]) Struck() <-chan struct{} { return f.struck }

// Open continues the calls that the fault stalls at present. The caller holds Mu.
func (f *Fault[C, F]) Open() {
	close(f.gate)
	f.gate = make(chan struct{})
}

// Wait waits for a gate to open, or for the end of a context.
func Wait(ctx context.Context, gate <-chan struct{}) error {
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("injected fault: stalled: %w", context.Cause(ctx))
	}
}
