// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/breaker"
)

// BreakerConfig holds the limits of a Guarded store.
type BreakerConfig struct {
	// MaxFailures is how many failures in a row open the breaker. Defaults to 5.
	MaxFailures int
	// CallTimeout bounds Save, Load and Delete. Defaults to 20 s.
	CallTimeout time.Duration
	// ResetTimeout is how long the breaker stays open before one call is tried.
	// Defaults to 10 s. It is longer than that of a journal because whoever makes the
	// call waits for it, and could do without a snapshot.
	ResetTimeout time.Duration
	// OnChange is called with true when the breaker opens and with false when it closes again, in
	// order. It must not block or call the store. Optional.
	OnChange func(open bool)
}

// Guarded is a Store behind a circuit breaker and a call time-out.
type guarded struct {
	store   Store
	breaker *breaker.Caller

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

var _ Store = (*guarded)(nil)

// Guard returns a Store that passes calls on to store while it answers. Save,
// Load and Delete end after the call time-out; too many failures in a row open
// the breaker, and then they fail with ErrBreakerOpen until the reset time-out
// has passed and one of them has succeeded.
//
// A failure is a call that took too long or in which the store did not answer.
// That nothing matches, that what matches is damaged, that a snapshot is too
// large are answers, and a call whose caller went away says nothing.
//
// A call returns when its context ends or its time is up, even if the store
// goes on with it. A Save that ended so may still be stored, whole; Close waits
// for what goes on. List is not guarded: it takes as long as its loop.
func WithBreaker(store Store, cfg BreakerConfig) (Store, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: WithBreaker needs a store", ErrInvalid)
	}
	gate := breaker.Config{
		MaxFailures:  cmp.Or(cfg.MaxFailures, 5),
		CallTimeout:  cmp.Or(cfg.CallTimeout, 20*time.Second),
		ResetTimeout: cmp.Or(cfg.ResetTimeout, 10*time.Second),
		OnChange:     cfg.OnChange,
	}
	if err := gate.Validate("BreakerConfig"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return &guarded{store: store, breaker: breaker.NewCaller(gate)}, nil
}

// Save implements Store.
func (g *guarded) Save(ctx context.Context, s Snapshot) error {
	_, err := do(ctx, g, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.store.Save(ctx, s)
	})
	return err
}

// Load implements Store.
func (g *guarded) Load(ctx context.Context, id string, c Criteria) (Snapshot, error) {
	return do(ctx, g, func(ctx context.Context) (Snapshot, error) {
		return g.store.Load(ctx, id, c)
	})
}

// List implements Store. It passes through.
func (g *guarded) List(ctx context.Context, id string, c Criteria) iter.Seq2[Metadata, error] {
	return g.store.List(ctx, id, c)
}

// Delete implements Store.
func (g *guarded) Delete(ctx context.Context, id string, c Criteria) error {
	_, err := do(ctx, g, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.store.Delete(ctx, id, c)
	})
	return err
}

// Close closes the store behind the breaker and waits for the calls that it
// goes on with.
func (g *guarded) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	err := g.store.Close()
	g.calls.Wait()
	return err
}

// begin adds a call for Close to wait for.
func (g *guarded) begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.calls.Add(1)
	return nil
}

// guarded makes a call unless the breaker is open, and leaves it when its
// context ends.
func do[R any](ctx context.Context, g *guarded, call func(context.Context) (R, error)) (R, error) {
	var result R
	if err := g.begin(); err != nil {
		return result, err
	}
	defer g.calls.Done()
	err := g.breaker.Do(ctx, func(ctx context.Context) (breaker.Outcome, error) {
		type answer struct {
			result R
			err    error
		}
		answers := make(chan answer, 1)
		g.calls.Go(func() {
			r, err := call(ctx)
			answers <- answer{r, err}
		})
		select {
		case a := <-answers:
			result = a.result
			return outcome(a.err), a.err
		case <-ctx.Done():
			return breaker.Failure, context.Cause(ctx)
		}
	})
	switch {
	case errors.Is(err, breaker.ErrOpen):
		return result, ErrBreakerOpen
	case errors.Is(err, breaker.ErrCallTimeout):
		return result, fmt.Errorf("%w: %w", ErrCallTimeout, err)
	}
	return result, err
}

// outcome says whether the store answered a call.
func outcome(err error) breaker.Outcome {
	for _, answer := range []error{ErrNotFound, ErrCorrupt, ErrNewerVersion, ErrInvalid, ErrTooLarge} {
		if errors.Is(err, answer) {
			return breaker.Success
		}
	}
	if errors.Is(err, ErrClosed) {
		return breaker.Unknown
	}
	return breaker.Of(err)
}
