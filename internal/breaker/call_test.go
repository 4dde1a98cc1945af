// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package breaker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/internal/breaker"
)

var (
	errStore = errors.New("store is unavailable")
	errOpen  = errors.New("breaker is open")
	errLate  = errors.New("call timed out")
)

func config() breaker.Config {
	return breaker.Config{MaxFailures: 2, CallTimeout: time.Second, ResetTimeout: time.Minute, Open: errOpen, Late: errLate}
}

func result(err error) func(context.Context) (breaker.Outcome, error) {
	return func(context.Context) (breaker.Outcome, error) { return breaker.Of(err), err }
}

// hang waits for the end of its context.
func hang(ctx context.Context) (breaker.Outcome, error) {
	<-ctx.Done()
	return breaker.Failure, ctx.Err()
}

func TestCallerOpensAndCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var states []bool
		cfg := config()
		cfg.OnChange = func(open bool) { states = append(states, open) }
		g := breaker.NewCaller(cfg)
		for range 2 {
			if err := g.Do(t.Context(), result(errStore)); !errors.Is(err, errStore) {
				t.Errorf("got %v, want the store's error", err)
			}
		}
		called := false
		if err := g.Do(t.Context(), func(context.Context) (breaker.Outcome, error) {
			called = true
			return breaker.Success, nil
		}); !errors.Is(err, errOpen) || called {
			t.Errorf("got %v, want errOpen without a call", err)
		}
		time.Sleep(time.Minute)
		if err := g.Do(t.Context(), result(nil)); err != nil {
			t.Error(err)
		}
		want := []bool{true, false}
		if !slices.Equal(states, want) {
			t.Errorf("OnChange was called with %v, want %v", states, want)
		}
	})
}

func TestCallerCountsTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := breaker.NewCaller(config())
		start := time.Now()
		err := g.Do(t.Context(), hang)
		if !errors.Is(err, errLate) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want a timeout after a second", err, time.Since(start))
		}
		// A call that succeeds after the timeout counts as a failure of the store, but returns no
		// error.
		if err := g.Do(t.Context(), func(context.Context) (breaker.Outcome, error) {
			time.Sleep(time.Second)
			return breaker.Success, nil
		}); err != nil {
			t.Error(err)
		}
		if err := g.Do(t.Context(), result(nil)); !errors.Is(err, errOpen) {
			t.Errorf("got %v, want errOpen after two timeouts", err)
		}
	})
}

func TestCallerIgnoresEndedContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := breaker.NewCaller(config())
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := g.Do(ctx, hang); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errLate) {
				t.Errorf("got %v, want the caller's deadline", err)
			}
			cancel()
		}
		if err := g.Do(t.Context(), result(nil)); err != nil {
			t.Error(err)
		}
	})
}

func TestCallerCountsPanics(t *testing.T) {
	t.Parallel()
	g := breaker.NewCaller(config())
	for range 2 {
		func() {
			defer func() {
				if v := recover(); v != "boom" {
					t.Errorf("recovered %v, want the panic of the call", v)
				}
			}()
			_ = g.Do(t.Context(), func(context.Context) (breaker.Outcome, error) { panic("boom") })
		}()
	}
	if err := g.Do(t.Context(), result(nil)); !errors.Is(err, errOpen) {
		t.Errorf("got %v, want errOpen", err)
	}
}

func TestConfigErrorNamesEachField(t *testing.T) {
	t.Parallel()
	errBad := errors.New("bad")
	if err := config().Validate(errBad, "X"); err != nil {
		t.Error(err)
	}
	err := breaker.Config{MaxFailures: -1}.Validate(errBad, "GuardConfig")
	for _, field := range []string{"GuardConfig.MaxFailures", "GuardConfig.CallTimeout", "GuardConfig.ResetTimeout"} {
		if !errors.Is(err, errBad) || !strings.Contains(err.Error(), field) {
			t.Errorf("the error is %v, want one that names %s", err, field)
		}
	}
}
