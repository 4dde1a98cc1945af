// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package breaker holds the circuit breaker that protects a store that does not
// answer from more calls, and its callers from waiting for it.
//
//	         failure × MaxFailures                reset time-out
//	closed ────────────────────────▶ open ────────────────────────▶ half-open
//	  ▲                               ▲                              │     │
//	  │                               └──────── trial failed ────────┘     │
//	  └──────────────────────────────────────── trial succeeded ───────────┘
//
// A Breaker is the pure state machine; it is told the time and is not safe for
// concurrent use. A Caller is the shell around it: it has the mutex, reads the
// clock, and sets the time-out of a call.
//
//	gate := breaker.NewCaller(breaker.Config{MaxFailures: 5, CallTimeout: 20 * time.Second, ResetTimeout: time.Minute})
//	err := gate.Do(ctx, func(ctx context.Context) (breaker.Outcome, error) {
//		err := store.Delete(ctx, id)
//		return breaker.Of(err), err
//	})
//	if errors.Is(err, breaker.ErrOpen) {
//		// The store was not called.
//	}
//
// It stands on no floor: package journal and package snapshot both use it, and
// neither may import the other.
package breaker

import "time"

// State is what a Breaker does with calls.
type State uint8

const (
	// Closed lets all calls through.
	Closed State = iota
	// Open lets none through.
	Open
	// HalfOpen has let one call through, on which the next state depends.
	HalfOpen
)

// String returns the name of the state.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	}
	return "invalid"
}

// Outcome is what a call said about the store.
type Outcome uint8

const (
	// Success says that the store answered.
	Success Outcome = iota
	// Failure says that it did not, or not in time.
	Failure
	// Unknown says that the call ended for another reason, such as a caller
	// that went away. It does not count.
	Unknown
)

// Of returns the outcome of a call that has no errors but the store's.
func Of(err error) Outcome {
	if err != nil {
		return Failure
	}
	return Success
}

// Ticket belongs to one call that a Breaker let through. The outcomes of calls
// that began before the last change of state do not count.
type Ticket struct{ term uint64 }

// Breaker counts consecutive failures and opens when there are too many.
type Breaker struct {
	maxFailures  int
	resetTimeout time.Duration

	state    State
	term     uint64 // counts changes of state
	failures int
	retryAt  time.Time
}

// New returns a closed Breaker that opens after maxFailures (at least 1) failures in a
// row and tries one call after resetTimeout.
func New(maxFailures int, resetTimeout time.Duration) Breaker {
	return Breaker{maxFailures: maxFailures, resetTimeout: resetTimeout}
}

// State returns the current state. An open Breaker stays so after the reset
// time-out until the next call.
func (b *Breaker) State() State { return b.state }

// Begin asks to make a call. True means go ahead, and then call End with the
// ticket. The first call after the reset time-out is the trial; while it is on
// its way no other gets through.
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

// End says how a call ended.
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
			b.setState(Open) // the time-out is over: the next call is the trial
		}
	}
}

func (b *Breaker) setState(s State) {
	b.state = s
	b.term++
}
