// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// ErrOpen is returned by Caller.Do for a call that was not made.
	ErrOpen = errors.New("circuit breaker open")
	// ErrCallTimeout is the cause of the context of a call whose time was up.
	ErrCallTimeout = errors.New("call timed out")
)

// Config holds the limits of a Caller. All of them are required and positive.
type Config struct {
	// MaxFailures is how many failures in a row open the breaker.
	MaxFailures int
	// CallTimeout bounds a call. One that takes longer is a failure, whatever
	// it returns.
	CallTimeout time.Duration
	// ResetTimeout is how long the breaker stays open before it tries a call.
	ResetTimeout time.Duration
	// OnChange is called with true when the breaker opens and with false when it closes again, in
	// order. A half-open breaker counts as open. The mutex of the Caller is held: OnChange must not
	// block or use the Caller. Nil is none.
	OnChange func(open bool)
}

// Validate returns all mistakes, each naming the field of what.
func (c Config) Validate(what string) error {
	var errs []error
	if c.MaxFailures <= 0 {
		errs = append(errs, fmt.Errorf("%s.MaxFailures is %d, it must be positive", what, c.MaxFailures))
	}
	if c.CallTimeout <= 0 {
		errs = append(errs, fmt.Errorf("%s.CallTimeout is %v, it must be positive", what, c.CallTimeout))
	}
	if c.ResetTimeout <= 0 {
		errs = append(errs, fmt.Errorf("%s.ResetTimeout is %v, it must be positive", what, c.ResetTimeout))
	}
	return errors.Join(errs...)
}

// Caller lets calls through a Breaker. It is safe for concurrent use.
type Caller struct {
	cfg Config

	mu      sync.Mutex
	breaker Breaker
}

// NewCaller returns a Caller that is closed in the sense of a breaker: calls go
// through.
func NewCaller(cfg Config) *Caller {
	return &Caller{cfg: cfg, breaker: New(cfg.MaxFailures, cfg.ResetTimeout)}
}

// Do makes a call with a context that ends after the call time-out, unless the
// breaker is open: then it returns ErrOpen at once. It waits for the call to
// return even when its time is up, so nothing that the call uses is in use
// afterwards; a panic of the call passes through and counts as a failure.
//
// A call that fails because ctx itself ended says nothing about the store.
func (g *Caller) Do(ctx context.Context, call func(context.Context) (Outcome, error)) error {
	start := time.Now()
	ticket, ok := g.begin(start)
	if !ok {
		return ErrOpen
	}
	outcome := Failure
	defer func() { g.end(ticket, outcome) }()
	bounded, cancel := context.WithTimeoutCause(ctx, g.cfg.CallTimeout, ErrCallTimeout)
	defer cancel()
	result, err := call(bounded)
	switch {
	case time.Since(start) >= g.cfg.CallTimeout:
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w after %v: %w", ErrCallTimeout, g.cfg.CallTimeout, err)
		}
	case result == Failure && ctx.Err() != nil:
		outcome = Unknown
	default:
		outcome = result
	}
	return err
}

func (g *Caller) begin(now time.Time) (Ticket, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.breaker.State()
	t, ok := g.breaker.Begin(now)
	g.report(before)
	return t, ok
}

func (g *Caller) end(t Ticket, o Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.breaker.State()
	g.breaker.End(time.Now(), t, o)
	g.report(before)
}

func (g *Caller) report(before State) {
	open := g.breaker.State() != Closed
	if open != (before != Closed) && g.cfg.OnChange != nil {
		g.cfg.OnChange(open)
	}
}
