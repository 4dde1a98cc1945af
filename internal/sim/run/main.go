// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command run simulates clusters, and prints what happened, or which invariant was broken and
// how to see it again. See package sim.
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
	first := flag.Uint64("first", 1, "the first seed")
	seeds := flag.Uint64("seeds", 300, "how many")
	one := flag.Uint64("seed", 0, "only this one, with all that happens")
	nodes := flag.Int("large", 0, "instead: clusters of so many nodes, and what large clusters cost")
	rolling := flag.Int("rolling", 0, "instead: so many nodes that host shards are started anew, one after the other")
	parallel := flag.Int("p", runtime.NumCPU(), "how many at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok := false
	switch {
	case *rolling > 0:
		ok = restarts(*first, *rolling)
	case *nodes > 0:
		ok = large(ctx, *first, *seeds, *nodes)
	case *one != 0:
		ok = tell(*one)
	default:
		ok = many(ctx, *first, *seeds, *parallel)
	}
	stop()
	if !ok {
		os.Exit(1)
	}
}

// tell simulates one seed and writes its story.
func tell(seed uint64) bool {
	r := sim.Run(seed, sim.Options{Story: func(at time.Duration, text string) {
		fmt.Printf("%10.3f  %s\n", at.Seconds(), text)
	}})
	fmt.Printf("\nseed %d: %v of simulated time, %d faults, hash %016x\n", seed, r.Took.Round(time.Millisecond), r.Faults, r.Hash)
	if r.Violation != nil {
		fmt.Printf("BROKEN: %v\n", r.Violation)
	}
	return r.Violation == nil
}

// many simulates many seeds and reports whether all is well.
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
			fmt.Printf("seed %d, %v\n  BROKEN: %v\n  to see it again: make sim SEED=%d\n", r.Seed, r.Plan, r.Violation, r.Seed)
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
	fmt.Printf("\n%d seeds from %d on: %.1f hours of simulated time, %d faults, in %v\n", done, first, took.Hours(), faults, time.Since(began).Round(time.Second))
	fmt.Println(&size)
	missing := all.Missing(done)
	if len(missing) > 0 {
		fmt.Printf("never happened: %q\n", missing)
	}
	if len(failed) > 0 {
		slices.SortFunc(failed, func(a, b sim.Result) int { return int(a.Seed) - int(b.Seed) }) //nolint:gosec // small
		fmt.Printf("%d seeds broke an invariant, the first is: make sim SEED=%d\n", len(failed), failed[0].Seed)
	}
	return len(failed) == 0 && len(missing) == 0 && size.Enough() && ctx.Err() == nil
}

func isTerminal() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
