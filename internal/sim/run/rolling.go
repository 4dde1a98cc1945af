// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/refold-io/refold/internal/sim/rolling"
)

const (
	shardsPerNode = 10

	// The goals.
	goalOwners   = 1
	goalHandOffs = 1.3
	goalWall     = 10 * time.Minute
)

// restarts prints how a large cluster fares whose nodes are started anew with a new version, one after the other, and reports whether the goals
// were reached.
func restarts(seed uint64, nodes int) bool {
	began := time.Now()
	c := rolling.Restart{Seed: seed, Nodes: nodes, Shards: shardsPerNode * nodes}
	if isTerminal() {
		c.Progress = func(at time.Duration, restarted int) {
			fmt.Fprintf(os.Stderr, "\r\033[K%d of %d nodes are started anew, %v simulated, %v passed", restarted, nodes, at, time.Since(began).Round(time.Second))
		}
	}
	fmt.Printf("%d nodes with %d shards are started anew with a new version, one at a time, the next one 5 s after Up; membership is a model\n\n", nodes, c.Shards)
	r := c.Run()
	wall := time.Since(began)
	if c.Progress != nil {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
	ok := r.Err == nil
	row := func(what, figure, goal string, reached bool) {
		verdict := ""
		if !reached {
			verdict, ok = "MISSED", false
		}
		fmt.Printf("%-66s  %12s  %10s  %s\n", what, figure, goal, verdict)
	}
	ratio := float64(r.HandOffs) / float64(c.Shards)
	row("", "figure", "goal", true)
	row("owners of a shard at a time, at every step", fmt.Sprint(r.Owners), fmt.Sprintf("<= %d", goalOwners), r.Owners <= goalOwners)
	row("hand-offs that were completed, for each shard", fmt.Sprintf("%.3f", ratio), fmt.Sprintf("<= %.1f", goalHandOffs), ratio <= goalHandOffs)
	row("fullest minus emptiest region in the end, shards", fmt.Sprint(r.Spread), fmt.Sprintf("<= %d", rolling.Balanced), r.BalancedAfter >= 0)
	after := "never"
	if r.BalancedAfter >= 0 {
		after = fmt.Sprintf("%.0f s", r.BalancedAfter.Seconds())
	}
	row("until then, simulated", after, fmt.Sprintf("<= %.0f s", rolling.Afterwards.Seconds()), r.BalancedAfter >= 0)
	row("wall", wall.Round(time.Second).String(), fmt.Sprintf("<= %.0f min", goalWall.Minutes()), wall <= goalWall)
	fmt.Printf("\n%d of %d nodes restarted in %v simulated, %d coordinators; %d hand-offs given up, a shard was handed off %d times at most;\n",
		r.Restarts, nodes, r.Took.Round(time.Second), r.Coordinators, r.Failed, r.Most)
	fmt.Printf("a node gave its shards away in %v at most, %d had to be stopped by force; meanwhile the regions differed by %d shards at most;\n",
		r.Leaving.Round(time.Millisecond), r.Forced, r.Widest)
	fmt.Printf("%d commands were sent to entities, %d came there, %d were refused; %d steps of machines\n", r.Commands, r.Delivered, r.Refused, r.Steps)
	if r.Err != nil {
		fmt.Printf("BROKEN: %v\n", r.Err)
	}
	return ok
}
