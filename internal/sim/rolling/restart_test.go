// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Each shard moves about once, and the shards are balanced at the end.
func TestRestart(t *testing.T) {
	t.Parallel()
	for order, nodes := range map[Order]int{AnyOrder: 12, OldestFirst: 8} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			c := Restart{Seed: 1, Nodes: nodes, Shards: 5 * nodes, Order: order, Watch: 30 * time.Second}
			check(t, c, c.Run())
		})
	}
}

// Two runs with the same seed have the same result.
func TestRunsAreRepeatable(t *testing.T) {
	t.Parallel()
	c := Restart{Seed: 2, Nodes: 5, Shards: 25, Order: YoungestFirst, Watch: 30 * time.Second}
	first := c.Run()
	check(t, c, first)
	if again := c.Run(); again != first {
		t.Errorf("two runs with the same seed: got %+v and %+v, want equal results", first, again)
	}
}

func check(t *testing.T, c Restart, r Result) {
	t.Helper()
	switch most := c.Shards + 2*c.Shards/c.Nodes; { // the shards of the first node move twice, and the last node gets some
	case r.Err != nil:
		t.Fatal(r.Err)
	case r.Restarts != c.Nodes || r.Owners != 1 || r.Forced != 0 || r.Failed != 0 || r.Refused != 0 || r.Delivered != r.Commands:
		t.Errorf("got %+v, want %d restarts, 1 owner, no forced or abandoned hand-offs, and all commands delivered", r, c.Nodes)
	case r.HandOffs < c.Shards || r.HandOffs > most:
		t.Errorf("%d hand-offs of %d shards, want %d to %d", r.HandOffs, c.Shards, c.Shards, most)
	case r.BalancedAfter < 0 || r.Spread > Balanced:
		t.Errorf("at the end the regions differ by %d shards, want at most %d; balanced %v after the last restart (-1ns: never)", r.Spread, Balanced, r.BalancedAfter)
	case c.Order == OldestFirst && r.Coordinators < c.Nodes:
		t.Errorf("the coordinator moved %d times, want once with each restart", r.Coordinators-1)
	}
}

const (
	largeNodes    = 500 // in make sim-large
	shardsPerNode = 10

	// The goals.
	goalOwners   = 1
	goalHandOffs = 1.3
	goalWall     = 10 * time.Minute
)

// TestFigures prints the figures of a rolling restart and compares them with the goals. In make
// sim-large, which sets REFOLD_SIM_LARGE, the cluster has 500 nodes, and the wall time has a goal
// too.
func TestFigures(t *testing.T) {
	t.Parallel()
	nodes, began := 12, time.Now()
	if os.Getenv("REFOLD_SIM_LARGE") != "" {
		nodes = largeNodes
	}
	c := Restart{Seed: 1, Nodes: nodes, Shards: shardsPerNode * nodes}
	if info, err := os.Stderr.Stat(); nodes == largeNodes && err == nil && info.Mode()&os.ModeCharDevice != 0 {
		c.Progress = func(at time.Duration, restarted int) {
			fmt.Fprintf(os.Stderr, "\r\033[K%d of %d nodes restarted, %v simulated, %v passed", restarted, nodes, at, time.Since(began).Round(time.Second))
		}
	}
	t.Logf("%d nodes with %d shards restart with a new version, one at a time, the next one 5 s after Up; membership is a model", nodes, c.Shards)
	r := c.Run()
	wall := time.Since(began)
	if c.Progress != nil {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
	var table strings.Builder
	row := func(subject, figure, goal string, reached bool) {
		verdict := ""
		if !reached {
			verdict = "MISSED"
			t.Errorf("%s: %s, want %s", subject, figure, goal)
		}
		fmt.Fprintf(&table, "%-66s  %12s  %10s  %s\n", subject, figure, goal, verdict)
	}
	ratio := float64(r.HandOffs) / float64(c.Shards)
	row("", "figure", "goal", true)
	row("owners of a shard at the same time, at every step", fmt.Sprint(r.Owners), fmt.Sprintf("<= %d", goalOwners), r.Owners <= goalOwners)
	row("completed hand-offs per shard", fmt.Sprintf("%.3f", ratio), fmt.Sprintf("<= %.1f", goalHandOffs), ratio <= goalHandOffs)
	row("fullest minus emptiest region at the end, shards", fmt.Sprint(r.Spread), fmt.Sprintf("<= %d", Balanced), r.BalancedAfter >= 0)
	after := "never"
	if r.BalancedAfter >= 0 {
		after = fmt.Sprintf("%.0f s", r.BalancedAfter.Seconds())
	}
	row("time until then, simulated", after, fmt.Sprintf("<= %.0f s", Afterwards.Seconds()), r.BalancedAfter >= 0)
	row("wall", wall.Round(time.Second).String(), fmt.Sprintf("<= %.0f min", goalWall.Minutes()), nodes < largeNodes || wall <= goalWall)
	fmt.Fprintf(&table, "\n%d of %d nodes restarted in %v simulated, %d coordinators; %d hand-offs abandoned, at most %d hand-offs of one shard;\n",
		r.Restarts, nodes, r.Took.Round(time.Second), r.Coordinators, r.Failed, r.Most)
	fmt.Fprintf(&table, "a node handed off its shards in at most %v, %d stopped by force; the regions differed by at most %d shards;\n",
		r.Leaving.Round(time.Millisecond), r.Forced, r.Widest)
	fmt.Fprintf(&table, "%d commands sent to entities, %d delivered, %d refused; %d steps of machines\n", r.Commands, r.Delivered, r.Refused, r.Steps)
	t.Logf("\n%s", &table)
	if r.Err != nil {
		t.Errorf("BROKEN: %v", r.Err)
	}
}
