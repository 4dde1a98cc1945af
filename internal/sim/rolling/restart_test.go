// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/sim/rolling"
)

// TestRestart is the rolling restart of make sim-large with few nodes. Each shard moves about once,
// and the shards are balanced at the end.
func TestRestart(t *testing.T) {
	t.Parallel()
	for order, nodes := range map[rolling.Order]int{rolling.AnyOrder: 12, rolling.OldestFirst: 8} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			c := rolling.Restart{Seed: 1, Nodes: nodes, Shards: 5 * nodes, Order: order, Watch: 30 * time.Second}
			check(t, c, c.Run())
		})
	}
}

// Two runs with the same seed have the same result.
func TestRunsAreRepeatable(t *testing.T) {
	t.Parallel()
	c := rolling.Restart{Seed: 2, Nodes: 5, Shards: 25, Order: rolling.YoungestFirst, Watch: 30 * time.Second}
	first := c.Run()
	check(t, c, first)
	if again := c.Run(); again != first {
		t.Errorf("two runs with the same seed: got %+v and %+v, want equal results", first, again)
	}
}

func check(t *testing.T, c rolling.Restart, r rolling.Result) {
	t.Helper()
	switch most := c.Shards + 2*c.Shards/c.Nodes; { // the shards of the first node move twice, and the last node gets some
	case r.Err != nil:
		t.Fatal(r.Err)
	case r.Restarts != c.Nodes || r.Owners != 1 || r.Forced != 0 || r.Failed != 0 || r.Refused != 0 || r.Delivered != r.Commands:
		t.Errorf("got %+v, want %d restarts, 1 owner, no forced or abandoned hand-offs, and all commands delivered", r, c.Nodes)
	case r.HandOffs < c.Shards || r.HandOffs > most:
		t.Errorf("%d hand-offs of %d shards, want %d to %d", r.HandOffs, c.Shards, c.Shards, most)
	case r.BalancedAfter < 0 || r.Spread > rolling.Balanced:
		t.Errorf("at the end the regions differ by %d shards, want at most %d; balanced %v after the last restart (-1ns: never)", r.Spread, rolling.Balanced, r.BalancedAfter)
	case c.Order == rolling.OldestFirst && r.Coordinators < c.Nodes:
		t.Errorf("the coordinator moved %d times, want once with each restart", r.Coordinators-1)
	}
}
