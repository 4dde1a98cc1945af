// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durabletest

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/durable"
)

// Config says what to check, and how. The optional functions are called with the opener that
// Open, or Crash, has returned.
type Config struct {
	// Open returns an opener that has nothing stored. Required.
	Open func(tb testing.TB) durable.Opener
	// Crash returns an opener on what is left of the stores when the process is killed at this
	// very moment, or the power is cut. The stores that are open are still closed later; what
	// they return then is of no interest.
	Crash func(tb testing.TB, o durable.Opener) durable.Opener
	// Size returns how many bytes an open store takes up, once it has done what it does
	// in the background to make that less.
	Size func(tb testing.TB, o durable.Opener, s durable.Store) int64
	// Damage changes a byte of the record of a key in a closed store.
	Damage func(tb testing.TB, o durable.Opener, id durable.ID, key string)
	// Alter makes a closed store one of another format, as a later version may write it.
	Alter func(tb testing.TB, o durable.Opener, id durable.ID)
	// Replace puts something else into the place of a store that was never opened.
	Replace func(tb testing.TB, o durable.Opener, id durable.ID)
	// Fail makes calls of Write of an open store fail, in whatever way the disk does, until
	// heal is called.
	Fail func(tb testing.TB, o durable.Opener, s durable.Store) (heal func())
	// Limit is how long a check may take. Defaults to five minutes.
	Limit time.Duration
}

// Run checks that an opener and its stores keep their contracts. Each check is a parallel
// subtest.
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
		t.Logf("not checked, as Config does not say how: %s", strings.Join(without, ", "))
	}
}

// check is one property.
type check struct {
	name, rule string
	needs      func(cfg Config) bool // nil if it can always be checked
	run        func(f *fixture)
}

func (c check) on(tb testing.TB, cfg Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(cfg.Limit, 5*time.Minute))
	tb.Cleanup(cancel)
	c.run(&fixture{TB: tb, cfg: cfg, ctx: ctx, o: cfg.Open(tb)})
}
