// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

// Live returns an error that matches ErrClosed if Close has ended, and nil otherwise. It does not
// block.
func (r *Runtime) Live() error {
	select {
	case <-r.ended:
		return ErrClosed
	default:
		return nil
	}
}

// Ready returns an error that matches ErrClosed if Close was called, and nil otherwise. It does not
// block. The runtime stays ready while its journal is unavailable: usually all processes share the
// database, and a process without commands would make no call that closes the circuit breaker again.
func (r *Runtime) Ready() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return ErrClosed
	}
	return nil
}

// OpenBreakers returns the number of journals whose circuit breaker is open, for monitoring. Until
// the journal responds again, commands that persist events fail with journal.ErrBreakerOpen.
func (r *Runtime) OpenBreakers() (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.storages {
		if breakerOpen(s.journal) {
			n++
		}
	}
	return n
}
