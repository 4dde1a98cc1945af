// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
)

// State is the state of a worker or of a projection.
type State int

// The states, from the best to the worst. A running projection is in the worst state of its workers.
const (
	// NotStarted: neither Run nor CatchUp was called.
	NotStarted State = iota
	// Running: the worker handles events, or waits for new ones.
	Running
	// Starting: the worker has not read from the journal since it started or failed.
	Starting
	// Paused: the worker has events and waits for Resume.
	Paused
	// Retrying: the worker waits before the next attempt at an event.
	Retrying
	// Waiting: the worker failed and waits before its restart.
	Waiting
	// Stopped: Run or CatchUp has returned, or the worker failed permanently.
	Stopped
)

func (s State) String() string {
	names := [...]string{"not started", "running", "starting", "paused", "retrying", "waiting", "stopped"}
	if s < 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Status describes a projection. The counts start with New.
type Status struct {
	State State
	// Handled counts the events that were handled with success, Skipped the stored events that were
	// skipped, Retries the repeated attempts at an event, and Restarts the restarts of workers.
	Handled, Skipped, Retries, Restarts uint64
	// Lag is the largest known lag of a worker.
	Lag time.Duration
	// LagUnknownSince is the earliest LagUnknownSince of all workers, or the time at which the last
	// worker stopped. It is zero while the lag of all workers is known.
	LagUnknownSince time.Time
	// CaughtUp is set if all workers are caught up.
	CaughtUp bool
	// Err is the error that prevented the last start. After a successful start, it is the error of
	// the first worker that has an error.
	Err error
	// Failures is the number of consecutive failures to start, or the highest number of a worker.
	Failures int
	// NextTry is the time of the next start, or the earliest time of a worker.
	NextTry time.Time
	// Workers are ordered by their slices. The list is empty before the projection starts.
	Workers []WorkerStatus
}

// WorkerStatus describes a worker. It is reset by each Run.
type WorkerStatus struct {
	// Slices is its range.
	Slices journal.Slices
	State  State
	// Offset is the stored position.
	Offset journal.Offset
	// LastEvent is the time of the last handled event, zero if none was handled.
	LastEvent time.Time
	// Handled and Skipped count as those of Status do.
	Handled, Skipped uint64
	// Lag is the age of the oldest event that was read and is not handled, 0 if there is none. The
	// reader is one page ahead, also during a pause. While a worker waits for a restart, the event
	// that it failed on is the oldest one.
	Lag time.Duration
	// LagUnknownSince is the time since when the worker has no pending event and cannot check for
	// more. The reason is that the journal is unavailable or does not respond, or that the worker
	// failed or stopped. Lag is 0 during this time and has no meaning. LagUnknownSince is zero
	// while the lag is known.
	LagUnknownSince time.Time
	// CaughtUp is set if the worker has handled all events that the journal returned at the last
	// query. It is false while the journal cannot be queried. When a worker stops without an error,
	// CaughtUp keeps its value.
	CaughtUp bool
	// Err is the last failure of the worker. Err is reset when the worker stores a position, or
	// when no event is pending.
	Err error
	// Failures is the number of consecutive failures.
	Failures int
	// NextTry is the time of the next attempt at an event or of the restart, zero if none is pending.
	NextTry time.Time
}

// Status returns the current status.
func (p *Projection[E]) Status() Status {
	p.mu.Lock()
	running, started, workers := p.running, p.started, p.workers
	s := Status{Err: p.err, Failures: p.failures, NextTry: p.nextTry, LagUnknownSince: p.idleSince, CaughtUp: len(workers) > 0}
	p.mu.Unlock()
	s.Handled, s.Skipped = p.total.handled.Load(), p.total.skipped.Load()
	s.Retries, s.Restarts = p.total.retries.Load(), p.total.restarts.Load()
	now := time.Now()
	for _, w := range workers {
		one := w.figures.status(now)
		one.Slices = w.slices
		s.add(one)
	}
	switch {
	case !started:
		s.State = NotStarted
	case !running:
		s.State = Stopped
	case !s.NextTry.IsZero() && len(workers) == 0:
		s.State = Waiting
	case len(workers) == 0:
		s.State = Starting
	}
	return s
}

func (s *Status) add(w WorkerStatus) {
	earliest := func(to *time.Time, t time.Time) {
		if to.IsZero() || !t.IsZero() && t.Before(*to) {
			*to = t
		}
	}
	s.State = max(s.State, w.State)
	s.Lag = max(s.Lag, w.Lag)
	earliest(&s.LagUnknownSince, w.LagUnknownSince)
	s.CaughtUp = s.CaughtUp && w.CaughtUp
	if s.Err == nil {
		s.Err = w.Err
	}
	s.Failures = max(s.Failures, w.Failures)
	earliest(&s.NextTry, w.NextTry)
	s.Workers = append(s.Workers, w)
}

// slowAnswer is the response time of the journal after which Status reports the lag as unknown.
const slowAnswer = 5 * time.Second

type figures struct {
	mu           sync.Mutex
	now          WorkerStatus
	unknownSince time.Time // start of the time without queries; zero while the journal is queried
	asked        time.Time // start of the query in progress, or zero
	lost         time.Time // start of the last query if it failed, or zero
	oldest       time.Time // time of the oldest pending event of the worker
	next         time.Time // time of the first event in the page of the reader
	page         int       // number of that page
	end          bool
}

func (f *figures) status(now time.Time) WorkerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.now
	if !f.unknownSince.IsZero() && s.State == Running {
		s.State = Starting
	}
	oldest := f.oldest
	if oldest.IsZero() {
		oldest = f.next
	}
	switch {
	case !oldest.IsZero():
		s.Lag = max(0, now.Sub(oldest))
		return s
	case !f.unknownSince.IsZero():
		s.LagUnknownSince = f.unknownSince
	case !f.asked.IsZero() && now.Sub(f.asked) >= slowAnswer:
		s.LagUnknownSince = f.asked
	}
	s.CaughtUp = f.end && (s.LagUnknownSince.IsZero() || s.State == Stopped && s.Err == nil)
	return s
}

// begin starts a stream at the stored position.
func (f *figures) begin(stored journal.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.State, f.now.NextTry, f.now.Offset = Running, time.Time{}, stored
	f.next, f.page = time.Time{}, 0
}

// queryStarted is called before each query, queryEnded after each query.
func (f *figures) queryStarted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
}

func (f *figures) queryEnded(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = time.Time{}
	if err != nil {
		f.lost = f.asked
	}
	f.asked = time.Time{}
}

// ahead is called by the reader, with the number of its page and the time of its first event.
func (f *figures) ahead(page int, first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.page, f.next = page, first
}

// pageTaken is called when the worker receives a page. The reader may already have the next one.
func (f *figures) pageTaken(page int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.page == page {
		f.next = time.Time{}
	}
}

// pending sets the time of the oldest pending event, zero if there is none, and whether the journal
// has no further events.
func (f *figures) pending(oldest time.Time, end bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unknownSince = time.Time{}
	f.oldest, f.end = oldest, end
}

// state sets the state and clears the time of the next attempt.
func (f *figures) state(s State) {
	f.set(func(now *WorkerStatus) { now.State, now.NextTry = s, time.Time{} })
}

func (f *figures) set(change func(s *WorkerStatus)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.now)
}

// fail records the nth consecutive failure, which a pause follows.
func (f *figures) fail(err error, n int, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queryStopped(false)
	f.now.State, f.now.Err, f.now.Failures, f.now.NextTry = Waiting, err, n, time.Now().Add(pause)
}

// stop records the end of the worker, with an error if it failed permanently.
func (f *figures) stop(err error, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queryStopped(err == nil && f.end)
	f.now.State, f.now.NextTry = Stopped, time.Time{}
	if err != nil {
		f.now.Err, f.now.Failures = err, n
	}
}

// queryStopped records that the journal is no longer queried.
func (f *figures) queryStopped(end bool) {
	if f.unknownSince.IsZero() {
		f.unknownSince = f.lost
	}
	if f.unknownSince.IsZero() {
		f.unknownSince = time.Now()
	}
	f.end = end
}

func (f *figures) recover() {
	f.set(func(s *WorkerStatus) { s.Err, s.Failures = nil, 0 })
}
