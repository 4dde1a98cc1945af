// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package leasetest checks implementations of lease.Store.
//
//	func TestLeases(t *testing.T) {
//		leasetest.Run(t, leasetest.Config{
//			Open: func(tb testing.TB, timeout time.Duration) lease.Store { return open(tb, timeout) },
//		})
//	}
//
// Each check has its own store and is a subtest with its name; a failure prints the call and its
// result. Some checks wait until an entry expires.
package leasetest

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/refold-io/refold/lease"
)

// Config describes the store to check.
type Config struct {
	// Open returns a store without entries. Its entries expire after timeout. The suite closes the
	// store. Required.
	Open func(tb testing.TB, timeout time.Duration) lease.Store
	// Attach returns another store on the entries of s, as another process would open it. The suite
	// closes the returned store. Required.
	Attach func(tb testing.TB, s lease.Store) lease.Store
	// Timeout is the time-out of entries that expire during a check. Defaults to 1 s.
	Timeout time.Duration
	// Late is how long after its time-out an entry may expire. Defaults to 5 s.
	Late time.Duration
	// Limit is how long a check may take. Defaults to five minutes.
	Limit time.Duration
}

// long is the time-out of entries that do not expire during a check.
const long = time.Hour

// Run checks that a store keeps the contract of lease.Store. Each check is a parallel subtest.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("rule: %s", c.rule)
			c.on(t, cfg)
		})
	}
}

type check struct {
	name, rule string
	expires    bool // entries expire
	run        func(f *fixture)
}

func (c check) on(tb testing.TB, cfg Config) {
	tb.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Second)
	cfg.Late = cmp.Or(cfg.Late, 5*time.Second)
	timeout := long
	if c.expires {
		timeout = cfg.Timeout
	}
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(cfg.Limit, 5*time.Minute))
	f := &fixture{TB: tb, cfg: cfg, ctx: ctx, s: cfg.Open(tb, timeout)}
	tb.Cleanup(func() {
		cancel()
		if err := f.s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	c.run(f)
}

type fixture struct {
	testing.TB
	cfg Config
	ctx context.Context //nolint:containedctx // as in testing.T, for the time of one check
	s   lease.Store
}

// create creates an entry, and ends the check if that fails.
func (f *fixture) create(name, owner string) uint64 {
	f.Helper()
	revision, err := f.s.Create(f.ctx, name, owner)
	if err != nil {
		f.Fatalf("Create(%.40q, %q): %v", name, owner, err)
	}
	return revision
}

// want returns a function that takes the results of a call and reports an error that does not match
// the wanted one.
func (f *fixture) want(want error, call string) func(any, error) {
	return func(_ any, err error) {
		f.Helper()
		if !errors.Is(err, want) {
			f.Errorf("%s: %v, want %v", call, err, want)
		}
	}
}

func (f *fixture) wantEntry(s lease.Store, name, owner string, revision uint64) {
	f.Helper()
	if got, err := s.Get(f.ctx, name); err != nil || got != (lease.Entry{Owner: owner, Revision: revision}) {
		f.Errorf("Get(%.40q) = %+v, %v, want %s at %d", name, got, err, owner, revision)
	}
}
