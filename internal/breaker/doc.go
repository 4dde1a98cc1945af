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
// concurrent use. A Gate is the shell around it: it has the mutex, reads the
// clock, and sets the time-out of a call.
//
//	gate := breaker.NewGate(breaker.Config{MaxFailures: 5, CallTimeout: 20 * time.Second, ResetTimeout: time.Minute})
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
