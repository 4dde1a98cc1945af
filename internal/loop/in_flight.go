// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"sync"
)

// InFlight counts operations that have begun and not ended. Unlike sync.WaitGroup it allows new
// operations while a goroutine waits, and the wait can be cancelled. The zero value is ready for
// use.
type InFlight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n drops to 0, nil if no goroutine waits
}

// Begin counts one more operation.
func (f *InFlight) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

// End counts one operation less.
func (f *InFlight) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// Wait blocks until no operation is in flight or ctx ends. It reports whether no operation is in
// flight.
func (f *InFlight) Wait(ctx context.Context) bool {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return true
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}
