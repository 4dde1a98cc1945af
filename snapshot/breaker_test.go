// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

func guard(tb testing.TB, store snapshot.Store, c snapshot.BreakerConfig) snapshot.Store {
	tb.Helper()
	g, err := snapshot.WithBreaker(store, c)
	if err != nil {
		tb.Fatalf("WithBreaker: %v", err)
	}
	return g
}

func TestBreakerConformance(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, snapshottest.Config{Open: func(tb testing.TB) snapshot.Store {
		tb.Helper()
		return guard(tb, new(inmem.SnapshotStore), snapshot.BreakerConfig{})
	}})
}

func TestBreakerConfigErrorNamesEachField(t *testing.T) {
	t.Parallel()
	_, err := snapshot.WithBreaker(new(inmem.SnapshotStore), snapshot.BreakerConfig{MaxFailures: -1, CallTimeout: -1, ResetTimeout: -1})
	if !errors.Is(err, snapshot.ErrInvalid) {
		t.Fatalf("WithBreaker: %v, want ErrInvalid", err)
	}
	for _, field := range []string{"MaxFailures", "CallTimeout", "ResetTimeout"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
	if _, err := snapshot.WithBreaker(nil, snapshot.BreakerConfig{}); !errors.Is(err, snapshot.ErrInvalid) {
		t.Errorf("WithBreaker of a nil store: %v, want ErrInvalid", err)
	}
}

// scripted is a store whose loads call a function of the test.
type scripted struct {
	inmem.SnapshotStore

	calls atomic.Int64
	load  func(ctx context.Context) error
}

func (s *scripted) Load(ctx context.Context, _ string, _ snapshot.Criteria) (snapshot.Snapshot, error) {
	s.calls.Add(1)
	return snapshot.Snapshot{}, s.load(ctx)
}

func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

var errDisk = errors.New("disk failure")

// A panic of the store is the error of one call.
func TestBreakerContainsPanics(t *testing.T) {
	t.Parallel()
	g := guard(t, &scripted{load: func(context.Context) error { panic("oops") }}, snapshot.BreakerConfig{})
	if _, err := g.Load(t.Context(), "a", snapshot.Latest()); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("Load of a store that panics: %v, want the panic as an error", err)
	}
}

func TestBreakerOpensAndRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scripted{load: fails(errDisk)}
		var states []bool
		g := guard(t, store, snapshot.BreakerConfig{OnChange: func(open bool) { states = append(states, open) }})
		load := func() error {
			_, err := g.Load(t.Context(), "a", snapshot.Latest())
			return err
		}
		for range 5 {
			if err := load(); !errors.Is(err, errDisk) {
				t.Fatalf("Load of a closed breaker: %v, want the store's error", err)
			}
		}
		for name, err := range map[string]error{
			"Load":   load(),
			"Save":   g.Save(t.Context(), sample()),
			"Delete": g.Delete(t.Context(), "a", snapshot.Criteria{All: true}),
		} {
			if !errors.Is(err, snapshot.ErrBreakerOpen) {
				t.Errorf("%s of an open breaker: %v, want ErrBreakerOpen", name, err)
			}
		}
		time.Sleep(10*time.Second - time.Nanosecond)
		if err := load(); !errors.Is(err, snapshot.ErrBreakerOpen) || store.calls.Load() != 5 {
			t.Errorf("Load before the reset timeout: %v after %d calls, want ErrBreakerOpen after 5", err, store.calls.Load())
		}
		time.Sleep(time.Nanosecond)
		if err := load(); !errors.Is(err, errDisk) {
			t.Errorf("Load as a trial: %v, want the store's error", err)
		}
		if err := load(); !errors.Is(err, snapshot.ErrBreakerOpen) {
			t.Errorf("Load after a failed trial: %v, want ErrBreakerOpen", err)
		}
		time.Sleep(10 * time.Second)
		store.load = fails(nil)
		for range 2 {
			if err := load(); err != nil {
				t.Errorf("Load of a recovered store: %v", err)
			}
		}
		want := []bool{true, false}
		if !slices.Equal(states, want) {
			t.Errorf("OnChange was called with %v, want %v", states, want)
		}
	})
}

func TestBreakerCountsOnlyMissingResponses(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{
		nil, snapshot.ErrNotFound, snapshot.ErrNewerVersion, snapshot.ErrInvalid, snapshot.ErrTooLarge,
		&snapshot.CorruptError{File: "f", Reason: errDisk}, fmt.Errorf("load: %w", snapshot.ErrNotFound), snapshot.ErrClosed,
	} {
		store := &scripted{load: fails(answer)}
		g := guard(t, store, snapshot.BreakerConfig{MaxFailures: 1})
		for range 3 {
			if _, err := g.Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, answer) {
				t.Errorf("Load: %v, want %v", err, answer)
			}
		}
		if store.calls.Load() != 3 {
			t.Errorf("the breaker opened after the response %v, want it closed", answer)
		}
	}
}

func TestBreakerAbandonsSlowCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), false
		store := &scripted{load: func(ctx context.Context) error {
			<-release
			ended = true
			return context.Cause(ctx)
		}}
		g := guard(t, store, snapshot.BreakerConfig{MaxFailures: 1})
		start := time.Now()
		_, err := g.Load(t.Context(), "a", snapshot.Latest())
		if took := time.Since(start); !errors.Is(err, snapshot.ErrCallTimeout) || took != 20*time.Second {
			t.Errorf("Load of a store that hangs: %v after %v, want ErrCallTimeout after 20s", err, took)
		}
		if _, err := g.Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrBreakerOpen) {
			t.Errorf("Load after a call that took too long: %v, want ErrBreakerOpen", err)
		}
		time.AfterFunc(time.Hour, func() { close(release) })
		if err := g.Close(); err != nil || !ended {
			t.Errorf("Close: %v, waited for the call: %t", err, ended)
		}
	})
}

func TestBreakerIgnoresEndedContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scripted{load: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		g := guard(t, store, snapshot.BreakerConfig{MaxFailures: 1})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := g.Load(ctx, "a", snapshot.Latest()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Load whose context ends: %v, want context.DeadlineExceeded", err)
			}
			cancel()
		}
		if store.calls.Load() != 3 {
			t.Errorf("the breaker opened after %d calls whose context had ended, want it closed", store.calls.Load())
		}
		if err := g.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
