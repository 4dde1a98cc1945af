// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/journal"
)

// Config says what to check and what it claims to be able to do.
type Config struct {
	// Open returns a fresh and empty journal. The suite calls it once for each
	// check, possibly at the same time, and closes what it returns. What else
	// there is to clean up is left to tb.Cleanup. Required.
	Open func(tb testing.TB) journal.Journal

	// Reopen returns a journal with the contents of j, as after a restart of
	// the process or, better, after a crash. It closes j or kills what is behind
	// it, while calls may be in progress; the suite does not use j any more
	// and closes what is returned. Defaults to nil: contents do not survive,
	// and the checks about that are left out.
	Reopen func(tb testing.TB, j journal.Journal) journal.Journal

	// Stall makes the next Append call on j stall at its commit: it ends with
	// an unknown outcome, at once or when its context ends, and what it wrote is
	// committed no sooner than release is called, if at all. When release
	// returns, nothing of it is left to happen. It is called at least once,
	// perhaps twice. NewFaulty with the effect Late does this in memory. Defaults
	// to nil: the plugin can't be made to, and the checks about that are
	// left out.
	Stall func(tb testing.TB, j journal.Journal) (release func())

	// Attach returns another journal on the contents of j while j stays open, as
	// another process has it. The suite closes it. Defaults to nil: there can't be
	// one, and the checks about that are left out.
	Attach func(tb testing.TB, j journal.Journal) journal.Journal

	// MaxPayload is the size in bytes of the largest payload that the journal
	// takes; one byte more must be rejected. Defaults to 16 MiB.
	MaxPayload int

	// MaxWrite is the number of bytes of payload above which a write must be
	// rejected. Below 0 there is no such limit. Defaults to 64 MiB.
	MaxWrite int

	// Timeout is how long a check may take before the suite takes the journal to
	// hang. Defaults to five minutes.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	c.MaxPayload = cmp.Or(c.MaxPayload, 16<<20)
	c.MaxWrite = cmp.Or(c.MaxWrite, 64<<20)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	return c
}

// Run checks that a journal keeps the contract of journal.Journal, and those of
// journal.IDLister and journal.Querier if journal.As finds them. Each check is a parallel subtest on a
// journal of its own. What is not checked because the Config or the
// journal does not claim it is logged.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.Open == nil {
		t.Fatal("journaltest: Config.Open is required")
	}
	cfg = cfg.withDefaults()
	j := cfg.Open(t)
	claimed := claims(cfg, j)
	if err := j.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for _, c := range checks() {
		if !claimed[c.needs] {
			t.Logf("not checked: %s: needs %s", c.name, c.needs)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("rule: %s", c.rule)
			c.run(newFixture(t, cfg))
		})
	}
}

// power is something that not every journal can do.
type power string

const (
	base     power = ""
	reopens  power = "Config.Reopen"
	stalls   power = "Config.Stall"
	lists    power = "journal.IDLister"
	parallel power = "journal.Parallel"
	sizes    power = "Config.MaxWrite"
	queries  power = "journal.Querier"

	queriesReopen power = "journal.Querier and Config.Reopen"
	queriesAttach power = "journal.Querier and Config.Attach"
	queriesStall  power = "journal.Querier and Config.Stall"
)

func claims(cfg Config, j journal.Journal) map[power]bool {
	_, isLister := journal.As[journal.IDLister](j)
	_, isParallel := journal.As[journal.Parallel](j)
	_, isQuerier := journal.As[journal.Querier](j)
	return map[power]bool{
		base:     true,
		reopens:  cfg.Reopen != nil,
		stalls:   cfg.Stall != nil,
		lists:    isLister,
		parallel: isParallel,
		sizes:    cfg.MaxWrite > 0,
		queries:  isQuerier,

		queriesReopen: isQuerier && cfg.Reopen != nil,
		queriesAttach: isQuerier && cfg.Attach != nil,
		queriesStall:  isQuerier && cfg.Stall != nil,
	}
}

// check is one property of a journal.
type check struct {
	name  string
	rule  string // what holds, for whoever sees it fail
	needs power
	run   func(f *fixture)
}

func checks() []check {
	return slices.Concat(
		tckChecks(), replayChecks(), reentrancyChecks(), appendChecks(), sizeChecks(), roundTripChecks(), idChecks(),
		writerChecks(), randomChecks(), concurrencyChecks(), outcomeChecks(), deleteChecks(), listerChecks(), closeChecks(), reopenChecks(), queryChecks(),
	)
}
