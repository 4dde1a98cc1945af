// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"
)

// hub holds the present state and passes events on to those who read them. Nothing waits for a reader.
type hub struct {
	limit int

	mu      sync.Mutex
	state   *State
	changed chan struct{} // closed when there is another state
	readers map[*reader]struct{}
	closed  bool
	lagged  uint64
}

// reader is one who reads events.
type reader struct {
	kinds  map[EventKind]bool // nil is all
	news   chan struct{}
	queue  []Event
	behind bool // a snapshot stands for all that was missed
}

func newHub(limit int, state *State) *hub {
	return &hub{limit: limit, state: state, changed: make(chan struct{}), readers: map[*reader]struct{}{}}
}

func (h *hub) current() *State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// next returns the state, and what is closed when there is another one.
func (h *hub) next() (*State, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.changed
}

// publish takes a new state, and the events that led to it.
func (h *hub) publish(state *State, events []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
	close(h.changed)
	h.changed = make(chan struct{})
	for r := range h.readers { // each has a queue of its own
		h.pass(r, events)
		wake(r.news)
	}
}

func (h *hub) pass(r *reader, events []Event) {
	if r.behind {
		return // the snapshot will show it
	}
	before := len(r.queue)
	for _, e := range events {
		if r.kinds == nil || r.kinds[e.Kind] {
			r.queue = append(r.queue, e)
		}
	}
	if len(r.queue) > h.limit && before > 0 {
		r.queue, r.behind = nil, true
		h.lagged++
	}
}

// subscribe begins to read. The first event is a snapshot.
func (h *hub) subscribe(kinds []EventKind) *reader {
	r := &reader{news: make(chan struct{}, 1), behind: true}
	if len(kinds) > 0 {
		r.kinds = map[EventKind]bool{}
		for _, k := range kinds {
			r.kinds[k] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers[r] = struct{}{}
	return r
}

func (h *hub) unsubscribe(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
}

// take returns what a reader has not read yet, and whether nothing follows.
func (h *hub) take(r *reader) ([]Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := r.queue
	r.queue = nil
	if r.behind {
		r.behind = false
		events = []Event{{Kind: Snapshot, State: h.state}}
	}
	return events, h.closed
}

// close ends all readers once they have read what there is.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for r := range h.readers {
		wake(r.news)
	}
}

func (h *hub) lags() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lagged
}
