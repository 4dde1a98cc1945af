// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package durabletest checks implementations of durable.Opener and durable.Store.
//
//	func TestDurable(t *testing.T) {
//		durabletest.Run(t, durabletest.Config{
//			Open: func(tb testing.TB) durable.Opener { return mystore.NewDurable(tb.TempDir()) },
//		})
//	}
//
// Each check has its own opener and is a subtest. Failures show the call and its result. Checks
// that need an optional function of Config, such as Crash, are skipped without it.
package durabletest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/durable"
)

// Config configures Run. The optional functions are called with the opener that Open or Crash has
// returned. A check is skipped if it needs a function that is not set.
type Config struct {
	// Open returns an opener without stored data. Required.
	Open func(tb testing.TB) durable.Opener
	// Crash returns an opener for the data that remains if the process is killed, or loses power,
	// at the time of the call. Stores that are open at that time are closed later; the results of
	// Close are ignored.
	Crash func(tb testing.TB, o durable.Opener) durable.Opener
	// Size returns the size of an open store in bytes, after its background compaction.
	Size func(tb testing.TB, o durable.Opener, s durable.Store) int64
	// Damage changes a byte of the record of a key in a closed store.
	Damage func(tb testing.TB, o durable.Opener, id durable.ID, key string)
	// Alter changes the format of a closed store to the format of a later version.
	Alter func(tb testing.TB, o durable.Opener, id durable.ID)
	// Replace writes data of another program to the location of a store that was never opened.
	Replace func(tb testing.TB, o durable.Opener, id durable.ID)
	// Fail makes the calls of Write of an open store fail, as they would on a failing disk, until
	// heal is called.
	Fail func(tb testing.TB, o durable.Opener, s durable.Store) (heal func())
	// Limit is the time limit of a check. Defaults to five minutes.
	Limit time.Duration
}

// Run checks the contracts of an opener and its stores. Each check is a parallel subtest.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	var without []string
	for _, c := range checks() {
		if c.needs != nil && !c.needs(cfg) {
			without = append(without, c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("rule: %s", c.rule)
			c.on(t, cfg)
		})
	}
	if len(without) > 0 {
		t.Logf("checks that were skipped, because Config lacks their functions: %s", strings.Join(without, ", "))
	}
}

type check struct {
	name, rule string
	needs      func(cfg Config) bool // nil if the check needs no optional function
	run        func(f *fixture)
}

func (c check) on(tb testing.TB, cfg Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(cfg.Limit, 5*time.Minute))
	tb.Cleanup(cancel)
	c.run(&fixture{TB: tb, cfg: cfg, ctx: ctx, o: cfg.Open(tb)})
}

func checks() []check { return slices.Concat(recordChecks(), lifecycleChecks(), diskChecks()) }
