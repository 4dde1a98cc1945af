// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
)

// State is what a worker, or a projection, is doing.
type State int

// The states, from the best to the worst: a projection is in the worst of its
// workers' states.
const (
	// Running: it handles events, or waits for some.
	Running State = iota
	// Starting: it has not looked at the journal yet.
	Starting
	// Paused: it has events and waits for Resume.
	Paused
	// Retrying: it waits before it tries an event again.
	Retrying
	// Waiting: it failed, and waits before it begins again.
	Waiting
	// Stopped: it does not run, or gave up.
	Stopped
)

func (s State) String() string {
	names := [...]string{"running", "starting", "paused", "retrying", "waiting", "stopped"}
	if s < 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Status says how a projection is doing. The counts begin with New.
type Status struct {
	State State
	// Handled counts the events that handlers were given with success, Skipped
	// the stored events that were given up, Retries the repeated attempts at one,
	// and Restarts how often a worker failed.
	Handled, Skipped, Retries, Restarts uint64
	// Lag is the largest of the workers'.
	Lag time.Duration
	// CaughtUp says that all workers are.
	CaughtUp bool
	// Err is why the projection can't begin, nil if it could.
	Err error
	// Workers are in the order of their slices.
	Workers []WorkerStatus
}

// WorkerStatus says how a worker is doing. It begins anew with each Run.
type WorkerStatus struct {
	// Slices is its range.
	Slices journal.Slices
	State  State
	// Offset is the position that is stored.
	Offset journal.Offset
	// LastEvent is the time of the last event that was handled, zero if none was.
	LastEvent time.Time
	// Handled and Skipped count as those of Status do.
	Handled, Skipped uint64
	// Lag is the age of the oldest event that was read and is not handled, 0 if
	// there is none. The journal is read one page ahead, also in a pause; while a worker waits to
	// begin again, the event that it failed at is the oldest.
	Lag time.Duration
	// CaughtUp says that it has handled all that the journal showed when it was
	// last looked at.
	CaughtUp bool
	// Err is why it waits or has stopped.
	Err error
}

// Status returns how the projection is doing now.
func (p *Projection[E]) Status() Status {
	p.mu.Lock()
	running, workers := p.running, p.workers
	s := Status{State: Running, Err: p.err, CaughtUp: len(workers) > 0}
	p.mu.Unlock()
	s.Handled, s.Skipped = p.total.handled.Load(), p.total.skipped.Load()
	s.Retries, s.Restarts = p.total.retries.Load(), p.total.restarts.Load()
	now := time.Now()
	for _, w := range workers {
		one := w.figures.status(now)
		one.Slices = w.slices
		s.State = max(s.State, one.State)
		s.Lag = max(s.Lag, one.Lag)
		s.CaughtUp = s.CaughtUp && one.CaughtUp
		s.Workers = append(s.Workers, one)
	}
	switch {
	case !running:
		s.State = Stopped
	case s.Err != nil:
		s.State = Waiting
	case len(workers) == 0:
		s.State = Starting
	}
	return s
}

// figures are what is shown of a worker.
type figures struct {
	mu     sync.Mutex
	now    WorkerStatus
	began  bool
	oldest time.Time // of what the worker holds
	next   time.Time // of the page that the reader holds
	page   int       // its number
	end    bool
}

func (f *figures) status(now time.Time) WorkerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.now
	if !f.began && s.State == Running {
		s.State = Starting
	}
	oldest := f.oldest
	if oldest.IsZero() {
		oldest = f.next
	}
	if !oldest.IsZero() {
		s.Lag = max(0, now.Sub(oldest))
	}
	s.CaughtUp = f.end && oldest.IsZero()
	return s
}

func (f *figures) state(s State, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.State, f.now.Err = s, err
}

// begin is called before the journal is read.
func (f *figures) begin(stored journal.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.State, f.now.Err, f.now.Offset = Running, nil, stored
	f.began, f.next, f.page = false, time.Time{}, 0
}

// ahead is called by the reader, with the number of its page and the time of the
// first event in it.
func (f *figures) ahead(page int, first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.page, f.next = page, first
}

// taken is called by the worker when it has got a page. The reader may hold the
// next one already.
func (f *figures) taken(page int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.page == page {
		f.next = time.Time{}
	}
}

// pending is called when the worker has something else to do: the time of its
// oldest event, zero if it has none, and whether the journal showed no more.
func (f *figures) pending(oldest time.Time, end bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = true
	f.oldest, f.end = oldest, end
}

func (f *figures) handled(events int, last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Handled += uint64(events) //nolint:gosec // a count
	f.now.LastEvent = last
}

func (f *figures) skipped() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Skipped++
}

func (f *figures) stored(offset journal.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Offset = offset
}
