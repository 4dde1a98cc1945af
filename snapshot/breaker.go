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
	"github.com/refold-io/refold/internal/panics"
)

// BreakerConfig configures WithBreaker.
type BreakerConfig struct {
	// MaxFailures is how many failures in a row open the breaker. Defaults to 5.
	MaxFailures int
	// CallTimeout bounds Save, Load and Delete. Defaults to 20 s.
	CallTimeout time.Duration
	// ResetTimeout is how long the breaker stays open before it lets one trial call through.
	// Defaults to 10 s. This is longer than the default of a journal, because the caller waits for
	// the trial call and does not depend on the snapshot.
	ResetTimeout time.Duration
	// OnChange is called with true when the breaker opens and with false when it closes again, in
	// order. It must not block or call the store. Optional.
	OnChange func(open bool)
}

type guarded struct {
	store   Store
	breaker *breaker.Caller

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

var _ Store = (*guarded)(nil)

// WithBreaker returns a Store that forwards calls to store through a circuit breaker. Save, Load
// and Delete end after the call timeout. After MaxFailures consecutive failures the breaker opens:
// these calls fail with ErrBreakerOpen until the reset timeout has passed and a trial call has
// succeeded.
//
// A call counts as a failure if it timed out or if the store did not respond. ErrNotFound,
// ErrCorrupt, ErrNewerVersion, ErrInvalid and ErrTooLarge are responses. A call that its caller
// canceled does not count.
//
// A call returns when its context ends or its timeout passes, even if the call of the store
// continues. The snapshot of such a Save may still be stored as a whole. Close waits for calls of
// the store that continue. List is forwarded without breaker and timeout.
func WithBreaker(store Store, cfg BreakerConfig) (Store, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: WithBreaker needs a store", ErrInvalid)
	}
	gate := breaker.Config{
		MaxFailures:  cmp.Or(cfg.MaxFailures, 5),
		CallTimeout:  cmp.Or(cfg.CallTimeout, 20*time.Second),
		ResetTimeout: cmp.Or(cfg.ResetTimeout, 10*time.Second),
		Open:         ErrBreakerOpen,
		Late:         ErrCallTimeout,
		OnChange:     cfg.OnChange,
	}
	if err := gate.Validate(ErrInvalid, "BreakerConfig"); err != nil {
		return nil, err
	}
	return &guarded{store: store, breaker: breaker.NewCaller(gate)}, nil
}

// BreakerOpen reports whether the circuit breaker is open. Package eventsourcing finds it by a type
// assertion.
func (g *guarded) BreakerOpen() bool { return g.breaker.Open() }

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

// List implements Store. It is forwarded without breaker and timeout.
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

// Local implements Local.
func (g *guarded) Local() bool {
	l, ok := g.store.(Local)
	return ok && l.Local()
}

// Close closes the wrapped store and waits for calls that are still running.
func (g *guarded) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	err := g.store.Close()
	g.calls.Wait()
	return err
}

// begin counts a call, so that Close waits for it.
func (g *guarded) begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.calls.Add(1)
	return nil
}

// do makes a call unless the breaker is open. It returns when the context ends, even if the call continues.
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
			var a answer
			a.err = panics.Catch(func() (err error) { a.result, err = call(ctx); return err })
			answers <- a
		})
		select {
		case a := <-answers:
			result = a.result
			return outcome(a.err), a.err
		case <-ctx.Done():
			return breaker.Failure, context.Cause(ctx)
		}
	})
	return result, err
}

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
