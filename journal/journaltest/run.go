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

// Config describes the journal to check and its capabilities.
type Config struct {
	// Open returns a new empty journal. The suite calls it once for each check, possibly
	// concurrently, and closes the journal. Register further cleanup with tb.Cleanup. Required.
	Open func(tb testing.TB) journal.Journal

	// Reopen returns a journal with the contents of j, as after a restart of the process or,
	// preferably, a crash. It closes j or kills its store, possibly while calls are in progress.
	// The suite does not use j afterwards and closes the returned journal. Defaults to nil:
	// contents do not survive, and the checks of this capability are left out.
	Reopen func(tb testing.TB, j journal.Journal) journal.Journal

	// Stall makes the next Append call on j stall at its commit. The call ends with an unknown
	// outcome, immediately or when its context ends. Its writes may be committed only after the
	// call of release. When release returns, the outcome is final. The suite calls Stall once or
	// twice. NewFaulty with the effect Late implements it in memory. Defaults to nil: the checks of
	// this capability are left out.
	Stall func(tb testing.TB, j journal.Journal) (release func())

	// Attach returns another journal with the contents of j while j stays open, as in another
	// process. The suite closes it. Defaults to nil: the checks of this capability are left out.
	Attach func(tb testing.TB, j journal.Journal) journal.Journal

	// MaxPayload is the size in bytes of the largest payload that the journal takes; one byte more
	// must be rejected. Defaults to 16 MiB.
	MaxPayload int

	// MaxWrite is the maximum payload of a write in bytes; a larger write must be rejected. A
	// negative value means no limit. Defaults to 64 MiB.
	MaxWrite int

	// Local claims that the journal is local to one node, see snapshot.Local.
	Local bool

	// Timeout is how long a check may take before the suite reports that the journal hangs.
	// Defaults to five minutes.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	c.MaxPayload = cmp.Or(c.MaxPayload, 16<<20)
	c.MaxWrite = cmp.Or(c.MaxWrite, 64<<20)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	return c
}

// Run checks whether a journal satisfies the contracts of journal.Journal and, if journal.As finds
// them, of journal.IDLister and journal.Querier. Each check is a parallel subtest with its own
// journal. Run leaves out the checks of capabilities that the Config or the journal does not have,
// and logs their names.
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

// power is a capability that not every journal has.
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

type check struct {
	name  string
	rule  string // printed on a failure
	needs power
	run   func(f *fixture)
}

func checks() []check {
	return slices.Concat(
		tckChecks(), replayChecks(), reentrancyChecks(), appendChecks(), sizeChecks(), roundTripChecks(), idChecks(),
		writerChecks(), randomChecks(), concurrencyChecks(), outcomeChecks(), deleteChecks(), listerChecks(), closeChecks(), reopenChecks(),
		queryMatchChecks(), queryPageChecks(), queryStateChecks(), queryWaitChecks(), queryReaderChecks(),
	)
}
