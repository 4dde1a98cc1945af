// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package shardingtest tests implementations of sharding.CoordinatorStore and
// sharding.RememberStore.
//
//	func TestStores(t *testing.T) {
//		shardingtest.Run(t, shardingtest.Config{
//			Open: func(tb testing.TB) shardingtest.Place { return open(tb) },
//		})
//	}
//
// Each check has its own Place and is a subtest. A failure reports the call and its result.
package shardingtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
)

// Config configures the suite.
type Config struct {
	// Open returns an empty place. tb.Cleanup closes it after all stores in it. Required.
	Open func(tb testing.TB) Place
	// Wrap runs a check, for example in a synctest bubble. Defaults to a plain call.
	Wrap func(t *testing.T, check func(t *testing.T))
	// Limit is the time limit of a check. Defaults to five minutes.
	Limit time.Duration
}

// Place is the storage that several nodes access.
type Place struct {
	// Coordinators returns the CoordinatorStores of a node, which is a number from 0. Several
	// numbers may stand for one node. If it is nil, CoordinatorStore is not tested.
	Coordinators func(node int) sharding.CoordinatorStores
	// Entities returns the RememberStores of a node. If it is nil, RememberStore is not tested.
	Entities func(node int) sharding.RememberStores
	// Unfenced is set if an owner of a shard can still write after another owner has loaded the
	// shard.
	Unfenced bool
	// Faults are the faults that the suite injects, one at a time. At least one fault must make
	// calls fail although their changes are stored.
	Faults []Fault
}

// Fault is a kind of failure.
type Fault struct {
	Name string
	// Strike injects the fault on a node until the returned function is called.
	Strike func(node int) (mend func())
	// Once is set if at most one call fails, so that a retry succeeds before the fault is repaired.
	Once bool
}

// Run tests that stores fulfill their contracts. Each check is a parallel subtest.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("rule: %s", c.rule)
			if cfg.Wrap == nil {
				c.on(t, cfg)
				return
			}
			cfg.Wrap(t, func(t *testing.T) { c.on(t, cfg) })
		})
	}
}

type check struct {
	name, rule string
	entities   bool // about a RememberStore
	run        func(f *fixture)
}

func checks() []check { return append(coordinatorChecks(), entityChecks()...) }

func (c check) on(tb testing.TB, cfg Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(cfg.Limit, 5*time.Minute))
	f := &fixture{TB: tb, ctx: ctx, place: cfg.Open(tb)}
	tb.Cleanup(cancel)
	if c.entities && f.place.Entities == nil || !c.entities && f.place.Coordinators == nil {
		tb.Logf("check skipped: the place opens no stores of this kind")
		return
	}
	c.run(f)
}

type fixture struct {
	testing.TB
	ctx   context.Context //nolint:containedctx // as in testing.T, for the time of one check
	place Place
}

// account is the scope of most checks.
func account() sharding.Scope { return sharding.Scope{Type: "account"} }

func (f *fixture) coordinators(node int, scope sharding.Scope) sharding.CoordinatorStore {
	f.Helper()
	s, err := f.place.Coordinators(node).OpenCoordinator(scope)
	f.opened(s, err, scope)
	return s
}

func (f *fixture) entities(node int, scope sharding.Scope) sharding.RememberStore {
	f.Helper()
	s, err := f.place.Entities(node).OpenEntities(scope)
	f.opened(s, err, scope)
	return s
}

// opened checks that a store was opened, and closes it at the end.
func (f *fixture) opened(store io.Closer, err error, scope sharding.Scope) {
	f.Helper()
	if err != nil {
		f.Fatalf("open the store of %+v: %v", scope, err)
	}
	f.Cleanup(func() { f.want(store.Close(), nil, "Close") })
}

// want checks that the error of a call matches the wanted error, or is nil if no error is wanted.
func (f *fixture) want(err, want error, call string, args ...any) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: %v, want %v", fmt.Sprintf(call, args...), err, want)
	}
}

func (f *fixture) failCanceled(calls map[string]func(ctx context.Context) error) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	for name, call := range calls { // independent of each other
		if call(ctx) == nil {
			f.Errorf("%s with an ended context: no error", name)
		}
	}
}
