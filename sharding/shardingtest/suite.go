// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package shardingtest checks implementations of sharding.CoordinatorStore and
// sharding.RememberStore.
//
//	func TestStores(t *testing.T) {
//		shardingtest.Run(t, shardingtest.Config{
//			Open: func(tb testing.TB) shardingtest.Place { return open(tb) },
//		})
//	}
//
// Each check has a place of its own, its name is the name of a subtest, and a failure says what was
// asked and what came back.
package shardingtest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
)

// Config says what to check.
type Config struct {
	// Open returns a place where nothing is stored. It is closed by tb.Cleanup, after all stores in it. Required.
	Open func(tb testing.TB) Place
	// Wrap runs a check: with synctest.Test, in a bubble with a clock of its own. Defaults to a call.
	Wrap func(t *testing.T, check func(t *testing.T))
	// Limit is how long a check may take. Defaults to five minutes.
	Limit time.Duration
}

// Place is where stores keep what they are given, as several nodes reach it.
type Place struct {
	// Coordinators returns what a node opens stores of coordinators with. Any number from 0 is a node; where
	// there are fewer, several numbers are one. Without it they are not checked.
	Coordinators func(node int) sharding.CoordinatorStores
	// Entities returns what a node opens stores of entities with. Without it they are not
	// checked.
	Entities func(node int) sharding.RememberStores
	// Unfenced says that an owner of a shard is not told, and not stopped from writing, when another one
	// has loaded it.
	Unfenced bool
	// Faults are what may go wrong. One strikes at a time. At least one has to let calls fail whose changes are stored nevertheless.
	Faults []Fault
}

// Fault is something that goes wrong.
type Fault struct {
	Name string
	// Strike lets it go wrong for a node from now on, until mend is called.
	Strike func(node int) (mend func())
	// Once says that at most one call fails, so that another try succeeds before it is mended.
	Once bool
}

// Run checks that the stores keep their contracts. Each check is a parallel subtest.
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

// check is one property of stores.
type check struct {
	name, rule string
	entities   bool // it is about a RememberStore
	run        func(f *fixture)
}

func checks() []check { return append(coordinatorChecks(), entityChecks()...) }

func (c check) on(tb testing.TB, cfg Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(cfg.Limit, 5*time.Minute))
	f := &fixture{TB: tb, ctx: ctx, place: cfg.Open(tb)}
	tb.Cleanup(cancel)
	if c.entities && f.place.Entities == nil || !c.entities && f.place.Coordinators == nil {
		tb.Logf("there are no such stores")
		return
	}
	c.run(f)
}

// fixture is what a check works on.
type fixture struct {
	testing.TB
	ctx   context.Context //nolint:containedctx // as in testing.T, for the time of one check
	place Place
}

// account is the scope of most checks.
func account() sharding.Scope { return sharding.Scope{Type: "account"} }

// coordinators opens a store, which is closed in the end.
func (f *fixture) coordinators(node int, scope sharding.Scope) sharding.CoordinatorStore {
	f.Helper()
	s, err := f.place.Coordinators(node).OpenCoordinator(scope)
	if err != nil {
		f.Fatalf("OpenCoordinator(%+v): %v", scope, err)
	}
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
	})
	return s
}

// entities opens a store, which is closed in the end.
func (f *fixture) entities(node int, scope sharding.Scope) sharding.RememberStore {
	f.Helper()
	s, err := f.place.Entities(node).OpenEntities(scope)
	if err != nil {
		f.Fatalf("OpenEntities(%+v): %v", scope, err)
	}
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
	})
	return s
}
