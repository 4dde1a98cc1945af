// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/sim"
)

const (
	loss       = 0.001
	joinWithin = 10 * time.Second

	// The goals.
	goalAllUp   = 45 * time.Second
	goalDecided = 38 * time.Second
	goalState   = 40 << 10
	goalFlat    = 1.5
)

// large prints how large clusters fare, and reports whether the goals were reached.
func large(ctx context.Context, first, seeds uint64, nodes int) bool {
	ok := gossip(first)
	worst := sim.LargeResult{}
	slowest := time.Duration(0)
	fmt.Printf("\n%d nodes join through 3 seeds within %v, then %d crash at once; latency 1 to 5 ms, loss %.1f %%, all by default\n\n", nodes, joinWithin, nodes/20, 100*loss)
	fmt.Printf("%6s  %22s  %20s  %6s\n", "seed", "last join to all up, s", "crash to decision, s", "wall")
	for seed := first; seed < first+seeds && ctx.Err() == nil; seed++ {
		began := time.Now()
		r := sim.Large{Seed: seed, Nodes: nodes, JoinWithin: joinWithin, Crash: nodes / 20, Loss: loss, Progress: progress(seed)}.Run()
		took := time.Since(began)
		if r.Err != nil {
			fmt.Printf("%6d  %v\n", seed, r.Err)
			ok = false
			continue
		}
		fmt.Printf("%6d  %22.1f  %20.1f  %6s\n", seed, r.AllUp.Seconds(), r.Decided.Seconds(), took.Round(time.Second))
		worst.AllUp, worst.Decided, slowest = max(worst.AllUp, r.AllUp), max(worst.Decided, r.Decided), max(slowest, took)
	}
	fmt.Printf("%6s  %22.1f  %20.1f  %6s\n", "worst", worst.AllUp.Seconds(), worst.Decided.Seconds(), slowest.Round(time.Second))
	fmt.Printf("%6s  %22.1f  %20.1f\n", "goal", goalAllUp.Seconds(), goalDecided.Seconds())
	return ok && worst.AllUp <= goalAllUp && worst.Decided <= goalDecided && ctx.Err() == nil
}

// gossip prints what nodes send that are left alone.
func gossip(seed uint64) bool {
	fmt.Printf("what a node sends a second on the control lane, with frames, in 60 s without changes; the other lanes are idle\n\n")
	fmt.Printf("%6s  %8s  %6s  %28s\n", "nodes", "messages", "bytes", "bytes of the encoded gossip")
	results := map[int]sim.LargeResult{}
	ok := true
	for _, n := range []int{3, 100, 1000} {
		r := sim.Large{Seed: seed, Nodes: n, JoinWithin: joinWithin, Loss: loss, Quiet: time.Minute, Progress: progress(seed)}.Run()
		if r.Err != nil {
			fmt.Printf("%6d  %v\n", n, r.Err)
			return false
		}
		results[n] = r
		fmt.Printf("%6d  %8.1f  %6.0f  %28d\n", n, r.Messages[link.Control], r.Bytes[link.Control], r.State)
		ok = ok && r.Messages[link.Data]+r.Messages[link.Bulk] == 0
	}
	ratio := results[1000].Bytes[link.Control] / results[100].Bytes[link.Control]
	fmt.Printf("\n1,000 nodes send %.2f times as much each as 100 do, the goal is at most %.1f; their gossip may have %d bytes\n", ratio, goalFlat, goalState)
	return ok && ratio <= goalFlat && results[1000].State <= goalState
}

func progress(seed uint64) func(time.Duration, string) {
	if !isTerminal() {
		return nil
	}
	return func(at time.Duration, what string) {
		fmt.Fprintf(os.Stderr, "\r\033[Kseed %d: %v simulated, until %s", seed, at, what)
	}
}
