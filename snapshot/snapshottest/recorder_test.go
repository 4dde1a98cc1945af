// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/refold-io/refold/snapshot/snapshottest"
)

// recorder is a test that notes failures instead of failing.
type recorder struct {
	testing.TB // for Context and TempDir

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

type fatal struct{}

func (r *recorder) Helper() {}

func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Context() context.Context { return r.TB.Context() }

// record runs a case and returns how it failed.
func record(t *testing.T, c snapshottest.Case) []string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if reason := recover(); reason != nil && reason != (fatal{}) {
				panic(reason)
			}
		}()
		c.Run(r)
	}()
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.failures
}
