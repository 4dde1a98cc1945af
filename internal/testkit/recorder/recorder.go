// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package recorder runs the checks of a conformance suite with a testing.TB that records failures,
// to prove that each check detects its bug:
//
//	failures := recorder.Find(t, func(tb testing.TB) { leasetest.RunOne(tb, broken, check) })
package recorder

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

type recorder struct {
	testing.TB

	ctx      context.Context //nolint:containedctx // as in testing.T
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// Record runs a check on its own goroutine and returns its failures. A panic counts as a failure. A
// run of more than one minute also counts as a failure.
func Record(t *testing.T, check func(tb testing.TB)) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			cancel()
			for _, cleanup := range slices.Backward(r.cleanups) {
				cleanup()
			}
		}()
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		check(r)
	}()
	deadline, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	select {
	case <-done:
	case <-deadline.Done():
		r.Errorf("the check did not end within a minute")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failures)
}

// Find runs a check until it fails, at most ten times, and returns its failures. Use it for bugs
// that depend on timing: on a busy machine, a single run may miss such a bug.
func Find(t *testing.T, check func(tb testing.TB)) []string {
	t.Helper()
	for range 10 {
		if failures := Record(t, check); len(failures) > 0 {
			return failures
		}
	}
	return nil
}

// Helper implements testing.TB.
func (r *recorder) Helper() {}

// Context implements testing.TB.
func (r *recorder) Context() context.Context { return r.ctx }

// Log implements testing.TB.
func (r *recorder) Log(...any) {}

// Logf implements testing.TB.
func (r *recorder) Logf(string, ...any) {}

// Fail implements testing.TB.
func (r *recorder) Fail() { r.Errorf("failed") }

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

// Fatal implements testing.TB.
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// Errorf implements testing.TB.
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// Fatalf implements testing.TB.
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// FailNow implements testing.TB.
func (r *recorder) FailNow() { runtime.Goexit() }

// Failed implements testing.TB.
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// Cleanup implements testing.TB.
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
