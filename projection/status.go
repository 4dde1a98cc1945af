// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"time"

	"github.com/refold-io/refold/journal"
)

// State is what a worker, or a projection, is doing.
type State int

// The states, from the best to the worst: a projection that runs is in the worst
// of its workers' states.
const (
	// NotStarted: neither Run nor CatchUp was called yet.
	NotStarted State = iota
	// Running: it handles events, or waits for some.
	Running
	// Starting: it has not seen the journal yet, or not since it failed.
	Starting
	// Paused: it has events and waits for Resume.
	Paused
	// Retrying: it waits before it tries an event again.
	Retrying
	// Waiting: it failed, and waits before it begins again.
	Waiting
	// Stopped: it does not run any more, or gave up.
	Stopped
)

func (s State) String() string {
	names := [...]string{"not started", "running", "starting", "paused", "retrying", "waiting", "stopped"}
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
	// and Restarts how often a worker failed and began again.
	Handled, Skipped, Retries, Restarts uint64
	// Lag is the largest of the workers', as far as theirs are known.
	Lag time.Duration
	// LagUnknownSince is the earliest of the workers', or since when there are none;
	// zero while the lag of all is known.
	LagUnknownSince time.Time
	// CaughtUp says that all workers are.
	CaughtUp bool
	// Err is why the last attempt failed to begin, or, if it began, the error of
	// the first worker that has one.
	Err error
	// Failures is how often in a row the projection failed to begin, or the largest of
	// the workers'.
	Failures int
	// NextTry is the earliest of the workers', or when the projection begins again.
	NextTry time.Time
	// Workers are in the order of their slices. There are none before the projection
	// has begun.
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
	// LagUnknownSince is since when the worker has no event in hand and can't see
	// whether there are more: because the journal is away or does not answer, or the
	// worker has failed or stopped. Lag is 0 then and means nothing. Zero while the lag
	// is known.
	LagUnknownSince time.Time
	// CaughtUp says that it has handled all that the journal showed when it was
	// last looked at. It is false while the journal can't be looked at; a worker that has
	// stopped without an error keeps it.
	CaughtUp bool
	// Err is why the worker failed the last time, or why it gave up. It stays until
	// the worker gets on: until a position is stored, or there is nothing to do.
	Err error
	// Failures is how often it failed in a row.
	Failures int
	// NextTry is when it tries an event again, or begins again; zero if it does not
	// wait for that.
	NextTry time.Time
}

// Status returns how the projection is doing now.
func (p *Projection[E]) Status() Status {
	p.mu.Lock()
	running, started, workers := p.running, p.started, p.workers
	s := Status{Err: p.err, Failures: p.failures, NextTry: p.nextTry, LagUnknownSince: p.blind, CaughtUp: len(workers) > 0}
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

// add takes a worker into account.
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
