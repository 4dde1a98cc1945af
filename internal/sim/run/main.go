// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command run simulates clusters and prints statistics of all events, or the broken invariants with
// the command that repeats them. See package sim.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"golang.org/x/term"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/sim"
)

func main() {
	first := flag.Uint64("first", 1, "first seed")
	seeds := flag.Uint64("seeds", 300, "number of seeds")
	one := flag.Uint64("seed", 0, "simulate only this seed and print all events")
	nodes := flag.Int("nodes", 0, "number of nodes, which have default downing times; 0 lets the seed choose both")
	measured := flag.Int("large", 0, "measure clusters of this number of nodes instead")
	parallel := flag.Int("p", runtime.NumCPU(), "number of seeds to simulate at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok := false
	switch {
	case *measured > 0:
		ok = large(ctx, *first, *seeds, *measured)
	case *one != 0:
		ok = trace(*one, *nodes)
	default:
		ok = many(ctx, *first, *seeds, *nodes, *parallel)
	}
	stop()
	if !ok {
		os.Exit(1)
	}
}

func trace(seed uint64, nodes int) bool {
	r := sim.Run(seed, nodes, func(at time.Duration, text string) {
		fmt.Printf("%10.3f  %s\n", at.Seconds(), text)
	})
	fmt.Printf("\nseed %d: %v of simulated time, %d faults, hash %016x\n", seed, r.Took.Round(time.Millisecond), r.Faults, r.Hash)
	if r.Violation != nil {
		fmt.Printf("BROKEN: %v\n", r.Violation)
	}
	return r.Violation == nil
}

// many simulates many seeds and reports whether all invariants hold and all events occurred.
func many(ctx context.Context, first, n uint64, nodes, parallel int) bool {
	began := time.Now()
	var failed []sim.Result
	var took time.Duration
	var faults int
	var size sim.Size
	all, done := sim.Coverage{}, uint64(0)
	progress := isTerminal()
	repeat := func(seed uint64) string {
		if nodes > 0 {
			return fmt.Sprintf("go run ./internal/sim/run -nodes %d -seed %d", nodes, seed)
		}
		return fmt.Sprintf("make sim SEED=%d", seed)
	}
	sim.Many(ctx, first, n, nodes, parallel, func(r sim.Result) {
		done++
		took += r.Took
		faults += r.Faults
		all.Add(r.Coverage)
		if r.Violation != nil {
			failed = append(failed, r)
			fmt.Printf("seed %d, %v\n  BROKEN: %v\n  repeat with: %s\n", r.Seed, r.Plan, r.Violation, repeat(r.Seed))
		} else {
			size.Add(&r)
		}
		if progress {
			fmt.Fprintf(os.Stderr, "\r%d of %d seeds, %d broken ", done, n, len(failed))
		}
	})
	if progress {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
	fmt.Printf("%v\n%d seeds from %d: %.1f hours of simulated time, %d faults, in %v\n", all, done, first, took.Hours(), faults, time.Since(began).Round(time.Second))
	fmt.Println(&size)
	missing := all.Missing(done)
	if len(missing) > 0 {
		fmt.Printf("events that never occurred: %q\n", missing)
	}
	if len(failed) > 0 {
		slices.SortFunc(failed, func(a, b sim.Result) int { return int(a.Seed) - int(b.Seed) }) //nolint:gosec // small
		fmt.Printf("%d seeds broke an invariant; repeat the first one with: %s\n", len(failed), repeat(failed[0].Seed))
	}
	return len(failed) == 0 && len(missing) == 0 && size.Enough() && ctx.Err() == nil
}

func isTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

const (
	loss       = 0.001
	joinWithin = 10 * time.Second

	// The goals.
	goalAllUp   = 45 * time.Second
	goalDecided = 38 * time.Second
	goalState   = 40 << 10
	goalFlat    = 1.5
)

// large prints the figures of large clusters and reports whether the goals were reached.
func large(ctx context.Context, first, seeds uint64, nodes int) bool {
	ok := gossip(first)
	worst := sim.LargeResult{}
	slowest := time.Duration(0)
	fmt.Printf("\n%d nodes join through 3 seeds within %v, then %d crash at once; latency 1 to 5 ms, loss %.1f %%, default settings\n\n", nodes, joinWithin, nodes/20, 100*loss)
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

// gossip prints the traffic of an idle cluster.
func gossip(seed uint64) bool {
	fmt.Printf("traffic of a node per second on the control lane, with frames, in 60 s without changes; the other lanes are idle\n\n")
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
	fmt.Printf("\nwith 1,000 nodes each sends %.2f times as much as with 100, the goal is at most %.1f; the gossip may have at most %d bytes\n", ratio, goalFlat, goalState)
	return ok && ratio <= goalFlat && results[1000].State <= goalState
}

func progress(seed uint64) func(time.Duration, string) {
	if !isTerminal() {
		return nil
	}
	return func(at time.Duration, subject string) {
		fmt.Fprintf(os.Stderr, "\r\033[Kseed %d: %v simulated, until %s", seed, at, subject)
	}
}
