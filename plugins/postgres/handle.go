// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import "sync"

// handle is what the journal and the snapshot store have in common: each can be
// closed by itself.
type handle struct {
	mu     sync.RWMutex // shared: a call is in progress
	closed bool
	taken  bool // guarded by DB.handleMu
}

// enter reports whether the handle is open. If so, leave must be called.
func (h *handle) enter() bool {
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		return false
	}
	return true
}

func (h *handle) leave() { h.mu.RUnlock() }

// shut waits for the calls in progress and reports whether the handle was open.
func (h *handle) shut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := !h.closed
	h.closed = true
	return open
}

func (db *DB) take(h *handle) {
	db.handleMu.Lock()
	defer db.handleMu.Unlock()
	if !h.taken {
		h.taken = true
		db.handles++
	}
}

// drop closes a handle, and the database with the last one.
func (db *DB) drop(h *handle) error {
	if !h.shut() {
		return nil
	}
	db.handleMu.Lock()
	db.handles--
	last := db.handles == 0
	db.handleMu.Unlock()
	if last {
		return db.Close()
	}
	return nil
}
