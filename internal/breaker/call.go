// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
)

// Config configures a Caller. All limits are required and must be positive.
type Config struct {
	// MaxFailures is how many failures in a row open the breaker.
	MaxFailures int
	// CallTimeout bounds a call. A call that takes longer is a failure, regardless of its result.
	CallTimeout time.Duration
	// ResetTimeout is how long the breaker stays open before it tries a call.
	ResetTimeout time.Duration
	// Open is the error of a call that was not made. Late is the error of a call that exceeded
	// CallTimeout.
	Open, Late error
	// OnChange is called with true when the breaker opens and with false when it closes again, in
	// order. A half-open breaker counts as open. The mutex of the Caller is held: OnChange must not
	// block or use the Caller, except for Open. Optional.
	OnChange func(open bool)
}

// Validate returns an error that matches invalid and names the bad fields of the given type.
func (c Config) Validate(invalid error, typeName string) error {
	var errs fielderror.Errors
	if c.MaxFailures <= 0 {
		errs.Addf(typeName+".MaxFailures", "is %d, it must be positive", c.MaxFailures)
	}
	if c.CallTimeout <= 0 {
		errs.Addf(typeName+".CallTimeout", "is %v, it must be positive", c.CallTimeout)
	}
	if c.ResetTimeout <= 0 {
		errs.Addf(typeName+".ResetTimeout", "is %v, it must be positive", c.ResetTimeout)
	}
	return errs.Err(invalid)
}

// Caller makes calls through a Breaker. It is safe for concurrent use.
type Caller struct {
	cfg Config

	open atomic.Bool // a copy for Open, which does not wait for mu

	mu      sync.Mutex
	breaker Breaker
}

// NewCaller returns a Caller whose breaker is closed.
func NewCaller(cfg Config) *Caller {
	return &Caller{cfg: cfg, breaker: New(cfg.MaxFailures, cfg.ResetTimeout)}
}

// Do makes a call with a context that ends after the call timeout. If the breaker is open, it
// returns Config.Open immediately. Do waits until the call returns, even after the timeout, so the
// caller may reuse everything that the call used. A panic of the call propagates and counts as a
// failure.
//
// A call that fails because ctx ended does not count as a failure.
func (g *Caller) Do(ctx context.Context, call func(context.Context) (Outcome, error)) error {
	start := time.Now()
	ticket, ok := g.begin(start)
	if !ok {
		return g.cfg.Open
	}
	outcome := Failure
	defer func() { g.end(ticket, outcome) }()
	bounded, cancel := context.WithTimeoutCause(ctx, g.cfg.CallTimeout, g.cfg.Late)
	defer cancel()
	result, err := call(bounded)
	switch {
	case time.Since(start) >= g.cfg.CallTimeout:
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w after %v: %w", g.cfg.Late, g.cfg.CallTimeout, err)
		}
	case result == Failure && ctx.Err() != nil:
		outcome = Unknown
	default:
		outcome = result
	}
	return err
}

// Open reports whether the breaker is not closed. It does not block, and OnChange may call it.
func (g *Caller) Open() bool { return g.open.Load() }

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
	if open == (before != Closed) {
		return
	}
	if g.open.Store(open); g.cfg.OnChange != nil {
		g.cfg.OnChange(open)
	}
}
