// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/breaker"
	"github.com/refold-io/refold/internal/panics"
)

var (
	// ErrBreakerOpen is returned when the circuit breaker is open because recent calls failed. The
	// store was not called.
	ErrBreakerOpen = errors.New("journal: circuit breaker open")
	// ErrCallTimeout is returned when a call exceeded BreakerConfig.CallTimeout.
	ErrCallTimeout = errors.New("journal: call timed out")

	errNotSentOpen = fmt.Errorf("%w: %w", ErrNotSent, ErrBreakerOpen)
)

// BreakerConfig configures WithBreaker.
type BreakerConfig struct {
	// MaxFailures is how many failures in a row open the breaker. Defaults to 10.
	MaxFailures int
	// CallTimeout bounds Append, HighestSequenceNr and DeleteTo. Defaults to 10 s.
	CallTimeout time.Duration
	// ResetTimeout is how long the breaker stays open before it lets one trial call through.
	// Defaults to 3 s: a restarted server is used again soon, and a server that is down receives
	// one call every 3 s from each process.
	ResetTimeout time.Duration
	// OnChange is called with true when the breaker opens and with false when it closes again, in
	// order. It must not block or call the journal. Optional.
	OnChange func(open bool)
}

type guarded struct {
	journal Journal
	breaker *breaker.Caller
	closed  atomic.Bool
}

var (
	_ Journal = (*guarded)(nil)
	_ Wrapper = (*guarded)(nil)
)

// WithBreaker returns a Journal that forwards calls to j through a circuit breaker. The context of
// Append, HighestSequenceNr and DeleteTo ends after the call timeout. After MaxFailures consecutive
// failures the breaker opens: these calls fail with ErrBreakerOpen until the reset timeout has
// passed and a trial call has succeeded. The writes of such an Append also match ErrNotSent.
//
// A call counts as a failure if it timed out or if the store did not respond. Conflicts,
// rejections, skipped writes and reports of damaged data are responses. A call that its caller
// canceled does not count. An Append with several failed writes counts as one failure. It counts as
// a success if the store responded for any of the writes.
//
// Replay is forwarded without a breaker and without a timeout. As finds the optional interfaces of
// j. WithBreaker never abandons a call: it waits until j returns, so j must respect its context.
//
// WithBreaker returns an Immediate journal unchanged.
func WithBreaker(j Journal, cfg BreakerConfig) (Journal, error) {
	if j == nil {
		return nil, fmt.Errorf("%w: WithBreaker needs a journal", ErrInvalid)
	}
	gate := breaker.Config{
		MaxFailures:  cmp.Or(cfg.MaxFailures, 10),
		CallTimeout:  cmp.Or(cfg.CallTimeout, 10*time.Second),
		ResetTimeout: cmp.Or(cfg.ResetTimeout, 3*time.Second),
		Open:         ErrBreakerOpen,
		Late:         ErrCallTimeout,
		OnChange:     cfg.OnChange,
	}
	if err := gate.Validate(ErrInvalid, "BreakerConfig"); err != nil {
		return nil, err
	}
	if IsImmediate(j) {
		return j, nil
	}
	return &guarded{journal: j, breaker: breaker.NewCaller(gate)}, nil
}

// BreakerOpen reports whether the circuit breaker is open. Package eventsourcing finds it by a type
// assertion.
func (g *guarded) BreakerOpen() bool { return g.breaker.Open() }

func (g *guarded) Unwrap() Journal { return g.journal }

// Append forwards the writes. While the breaker is open each slot matches ErrNotSent and
// ErrBreakerOpen.
func (g *guarded) Append(ctx context.Context, writes []Write) []error {
	if g.closed.Load() {
		return g.journal.Append(ctx, writes)
	}
	var slots []error
	err := g.breaker.Do(ctx, func(ctx context.Context) (breaker.Outcome, error) {
		slots = g.journal.Append(ctx, writes)
		for i, err := range slots { // a hostile error of one write must not affect the others
			slots[i] = panics.Safe(err)
		}
		return appendOutcome(slots), nil
	})
	if err != nil {
		return slices.Repeat([]error{errNotSentOpen}, len(writes))
	}
	return slots
}

// Replay is forwarded without breaker and timeout, because its duration depends on the length of
// the history.
func (g *guarded) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[Event, error] {
	return g.journal.Replay(ctx, id, from, to)
}

// HighestSequenceNr fails with ErrBreakerOpen while the breaker is open, and with ErrCallTimeout
// after the call timeout.
func (g *guarded) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	var highest uint64
	err := g.do(ctx, func(ctx context.Context) (err error) {
		highest, err = g.journal.HighestSequenceNr(ctx, id)
		return err
	})
	return highest, err
}

// DeleteTo fails with ErrBreakerOpen while the breaker is open, and with ErrCallTimeout after the
// call timeout.
func (g *guarded) DeleteTo(ctx context.Context, id string, to uint64) error {
	return g.do(ctx, func(ctx context.Context) error {
		return g.journal.DeleteTo(ctx, id, to)
	})
}

// Close closes the wrapped journal.
func (g *guarded) Close() error {
	g.closed.Store(true)
	return g.journal.Close()
}

func (g *guarded) do(ctx context.Context, call func(context.Context) error) error {
	if g.closed.Load() {
		return call(ctx) // returns the error of a closed journal
	}
	return g.breaker.Do(ctx, func(ctx context.Context) (breaker.Outcome, error) {
		err := call(ctx)
		return callOutcome(err), err
	})
}

// appendOutcome returns whether the store responded to an Append.
func appendOutcome(slots []error) breaker.Outcome {
	outcome := breaker.Success
	for _, err := range slots {
		switch {
		case err == nil, errors.Is(err, ErrConflict):
			return breaker.Success // only a store that responded returns such a slot
		case errors.Is(err, ErrRejected), errors.Is(err, ErrSkipped):
		default:
			outcome = callOutcome(err)
		}
	}
	return outcome
}

// callOutcome returns whether the store responded to a call.
func callOutcome(err error) breaker.Outcome {
	switch {
	case err == nil,
		errors.Is(err, ErrCorrupt), errors.Is(err, ErrNewerVersion), errors.Is(err, ErrInvalid):
		return breaker.Success
	case errors.Is(err, ErrClosed):
		return breaker.Unknown
	}
	return breaker.Failure
}
