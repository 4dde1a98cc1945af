// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin contains helpers for storage plugins: handles that close the journal and the
// snapshot store of one database separately, and an allocator for the values that they read.
package plugin

import "sync"

// Handle is the part of a database that can be closed separately: its journal or its snapshot
// store. All methods are safe for concurrent use.
type Handle struct {
	mu      sync.Mutex // never held while a call runs, so that a call during Shut does not wait
	closed  bool
	running int       // calls
	idle    sync.Cond // signaled when no call runs and closed is set
	done    chan struct{}
	taken   bool // guarded by Handles.mu
}

// NewHandle returns an open handle.
func NewHandle() *Handle {
	h := &Handle{done: make(chan struct{})}
	h.idle.L = &h.mu
	return h
}

// Enter reports whether the handle is open. If it is, the caller must call Leave.
func (h *Handle) Enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running++
	return true
}

// Leave ends a call that began with Enter.
func (h *Handle) Leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running--; h.closed && h.running == 0 {
		h.idle.Broadcast()
	}
}

// Done returns a channel that is closed when Shut begins, for calls that wait without Enter.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Shut closes the handle, waits for running calls, and reports whether it was open.
func (h *Handle) Shut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := !h.closed
	if open {
		h.closed = true
		close(h.done)
	}
	for h.running > 0 {
		h.idle.Wait()
	}
	return open
}

// Handles counts the open handles of a database, which is closed with the last of them. The zero
// value has none.
type Handles struct {
	mu   sync.Mutex
	open int
}

// Take counts a handle that a caller has received. Further calls for the same handle do nothing.
func (s *Handles) Take(h *Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.taken {
		h.taken = true
		s.open++
	}
}

// Close closes a handle, and calls closeAll after the last one.
func (s *Handles) Close(h *Handle, closeAll func() error) error {
	if !h.Shut() {
		return nil
	}
	s.mu.Lock()
	s.open--
	last := s.open == 0
	s.mu.Unlock()
	if last {
		return closeAll()
	}
	return nil
}

const (
	minArena = 4 << 10
	maxArena = 256 << 10
)

// Arena allocates the values of a page in blocks. The size of the blocks doubles from 4 to 256 KiB.
// A larger value gets a block of its own size. Allocated parts are never reused.
type Arena []byte

// Keep returns a copy of a value, nil if it is empty.
func (a *Arena) Keep(value []byte) []byte {
	if len(value) == 0 {
		return nil
	}
	b := *a
	if len(value) > cap(b)-len(b) {
		b = make([]byte, 0, max(len(value), min(2*cap(b), maxArena), minArena))
	}
	n := len(b)
	b = append(b, value...)
	*a = b
	return b[n:len(b):len(b)]
}
