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

	"github.com/refold-io/refold/internal/sim"
)

func main() {
	first := flag.Uint64("first", 1, "first seed")
	seeds := flag.Uint64("seeds", 300, "number of seeds")
	one := flag.Uint64("seed", 0, "simulate only this seed and print all events")
	nodes := flag.Int("large", 0, "measure clusters of this number of nodes instead")
	rolling := flag.Int("rolling", 0, "measure a rolling restart of this number of nodes with shards instead")
	parallel := flag.Int("p", runtime.NumCPU(), "number of seeds to simulate at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok := false
	switch {
	case *rolling > 0:
		ok = rollingRestart(*first, *rolling)
	case *nodes > 0:
		ok = large(ctx, *first, *seeds, *nodes)
	case *one != 0:
		ok = trace(*one)
	default:
		ok = many(ctx, *first, *seeds, *parallel)
	}
	stop()
	if !ok {
		os.Exit(1)
	}
}

// trace simulates one seed and prints its events.
func trace(seed uint64) bool {
	r := sim.Run(seed, sim.Options{Trace: func(at time.Duration, text string) {
		fmt.Printf("%10.3f  %s\n", at.Seconds(), text)
	}})
	fmt.Printf("\nseed %d: %v of simulated time, %d faults, hash %016x\n", seed, r.Took.Round(time.Millisecond), r.Faults, r.Hash)
	if r.Violation != nil {
		fmt.Printf("BROKEN: %v\n", r.Violation)
	}
	return r.Violation == nil
}

// many simulates many seeds and reports whether all invariants hold and all events occurred.
func many(ctx context.Context, first, n uint64, parallel int) bool {
	began := time.Now()
	var failed []sim.Result
	var took time.Duration
	var faults int
	var size sim.Size
	all, done := sim.Coverage{}, uint64(0)
	progress := isTerminal()
	sim.Many(ctx, first, n, parallel, func(r sim.Result) {
		done++
		took += r.Took
		faults += r.Faults
		all.Add(r.Coverage)
		if r.Violation != nil {
			failed = append(failed, r)
			fmt.Printf("seed %d, %v\n  BROKEN: %v\n  repeat with: make sim SEED=%d\n", r.Seed, r.Plan, r.Violation, r.Seed)
		} else {
			size.Add(r.Size())
		}
		if progress {
			fmt.Fprintf(os.Stderr, "\r%d of %d seeds, %d broken ", done, n, len(failed))
		}
	})
	if progress {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
	if _, err := all.WriteTo(os.Stdout); err != nil {
		return false
	}
	fmt.Printf("\n%d seeds from %d: %.1f hours of simulated time, %d faults, in %v\n", done, first, took.Hours(), faults, time.Since(began).Round(time.Second))
	fmt.Println(&size)
	missing := all.Missing(done)
	if len(missing) > 0 {
		fmt.Printf("events that never occurred: %q\n", missing)
	}
	if len(failed) > 0 {
		slices.SortFunc(failed, func(a, b sim.Result) int { return int(a.Seed) - int(b.Seed) }) //nolint:gosec // small
		fmt.Printf("%d seeds broke an invariant; repeat the first one with: make sim SEED=%d\n", len(failed), failed[0].Seed)
	}
	return len(failed) == 0 && len(missing) == 0 && size.Enough() && ctx.Err() == nil
}

func isTerminal() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
