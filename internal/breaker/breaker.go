// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package breaker implements a circuit breaker. While a store does not respond, the breaker stops
// further calls to it, and callers fail immediately instead of waiting.
//
//	         failure × MaxFailures                reset timeout
//	closed ────────────────────────▶ open ────────────────────────▶ half-open
//	  ▲                               ▲                              │     │
//	  │                               └──────── trial failed ────────┘     │
//	  └──────────────────────────────────────── trial succeeded ───────────┘
//
// Breaker is the pure state machine: the time is an argument of its methods. A Breaker is not safe
// for concurrent use. Caller is the shell: it owns the mutex, reads the clock, and sets the timeout
// of a call.
//
//	caller := breaker.NewCaller(breaker.Config{MaxFailures: 5, CallTimeout: 20 * time.Second, ResetTimeout: time.Minute, Open: errOpen, Late: errLate})
//	err := caller.Do(ctx, func(ctx context.Context) (breaker.Outcome, error) {
//		err := store.Delete(ctx, id)
//		return breaker.Of(err), err
//	})
//	if errors.Is(err, errOpen) {
//		// The store was not called.
//	}
//
// Packages journal and snapshot both use package breaker, because neither may import the other.
package breaker

import "time"

// State is the state of a Breaker.
type State uint8

const (
	// Closed lets all calls through.
	Closed State = iota
	// Open lets no calls through.
	Open
	// HalfOpen has let one trial call through. Its outcome determines the next state.
	HalfOpen
)

// Outcome classifies a call.
type Outcome uint8

const (
	// Success means that the store responded.
	Success Outcome = iota
	// Failure means that the store did not respond, or not in time.
	Failure
	// Unknown means that the call ended for another reason, such as a canceled caller. It counts
	// neither as a success nor as a failure.
	Unknown
)

// Of returns the outcome of a call whose only errors are those of the store.
func Of(err error) Outcome {
	if err != nil {
		return Failure
	}
	return Success
}

// Ticket belongs to one call that a Breaker let through. The outcomes of calls that began before
// the last change of state do not count.
type Ticket struct{ term uint64 }

// Breaker counts consecutive failures and opens when it reaches the maximum.
type Breaker struct {
	maxFailures  int
	resetTimeout time.Duration

	state    State
	term     uint64 // counts changes of state
	failures int
	retryAt  time.Time
}

// New returns a closed Breaker that opens after maxFailures (at least 1) failures in a row and
// tries one call after resetTimeout.
func New(maxFailures int, resetTimeout time.Duration) Breaker {
	return Breaker{maxFailures: maxFailures, resetTimeout: resetTimeout}
}

// State returns the current state. After the reset timeout, an open Breaker remains open until the
// next call.
func (b *Breaker) State() State { return b.state }

// Begin requests permission for a call. If it returns true, the caller makes the call and then
// calls End with the ticket. The first call after the reset timeout is the trial; no other call is
// permitted until it ends.
func (b *Breaker) Begin(now time.Time) (Ticket, bool) {
	switch b.state {
	case Closed:
		return Ticket{b.term}, true
	case Open:
		if now.Before(b.retryAt) {
			return Ticket{}, false
		}
		b.setState(HalfOpen)
		return Ticket{b.term}, true
	case HalfOpen:
	}
	return Ticket{}, false
}

// End reports the outcome of a call.
func (b *Breaker) End(now time.Time, t Ticket, o Outcome) {
	if t.term != b.term {
		return
	}
	switch o {
	case Success:
		b.failures = 0
		if b.state == HalfOpen {
			b.setState(Closed)
		}
	case Failure:
		b.failures++
		if b.state == HalfOpen || b.failures >= b.maxFailures {
			b.failures = 0
			b.retryAt = now.Add(b.resetTimeout)
			b.setState(Open)
		}
	case Unknown:
		if b.state == HalfOpen {
			b.setState(Open) // the reset timeout is over, so the next call is the trial
		}
	}
}

func (b *Breaker) setState(s State) {
	b.state = s
	b.term++
}
