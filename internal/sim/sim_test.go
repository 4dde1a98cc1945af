// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/sim"
	"github.com/refold-io/refold/internal/testkit/effort"
)

var (
	ranges = flag.String("sim.ranges", "300001", "first seeds of the ranges of TestViolationInEveryRange, separated by commas")
	length = flag.Uint64("sim.range", 1, "number of seeds in each range")
	first  = flag.Uint64("sim.first", 1, "first seed of TestSeeds")
	seeds  = flag.Uint64("sim.seeds", 0, "number of seeds of TestSeeds; 0 selects the usual number")
)

// TestSeeds simulates some seeds; make sim does more of them.
func TestSeeds(t *testing.T) {
	t.Parallel()
	all, count := sim.Coverage{}, cmp.Or(*seeds, effort.Count[uint64](2, 6, 60))
	sim.Many(t.Context(), *first, count, 0, runtime.GOMAXPROCS(0), func(r sim.Result) {
		all.Add(r.Coverage)
		if r.Violation != nil {
			t.Errorf("seed %d, %v: %v\nrepeat with: make sim SEED=%d", r.Seed, r.Plan, r.Violation, r.Seed)
		}
		var size sim.Size
		if size.Add(&r); r.Violation == nil && !size.Enough() {
			t.Errorf("seed %d: the simulation has %v, which is below the required extent", r.Seed, &size)
		}
	})
	if missing := all.Missing(count); len(missing) > 0 {
		t.Errorf("events that never occurred: %q", missing)
	}
}

// TestViolationInEveryRange detects mutants. It fails if each of the given ranges of seeds breaks
// an invariant. Correct code breaks no invariant.
func TestViolationInEveryRange(t *testing.T) {
	t.Parallel()
	var noticed []string
	begins := strings.Split(*ranges, ",")
	for _, begin := range begins {
		from, err := strconv.ParseUint(begin, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := sim.Result{Seed: math.MaxUint64}
		sim.Many(ctx, from, *length, 0, runtime.GOMAXPROCS(0), func(r sim.Result) {
			if r.Violation != nil && r.Seed < first.Seed {
				first = r
				cancel()
			}
		})
		cancel()
		if first.Violation != nil {
			noticed = append(noticed, fmt.Sprintf("noticed: seed %d of %d to %d: %v", first.Seed, from, from+*length-1, first.Violation))
		}
	}
	if len(noticed) == len(begins) {
		t.Errorf("an invariant is broken in each range of seeds, want none:\n%s", strings.Join(noticed, "\n"))
	}
}

// TestSameSeedSameEvents compares the hashes of the events of two runs. On a difference, two
// further runs find the first event that differs.
func TestSameSeedSameEvents(t *testing.T) {
	t.Parallel()
	seed := effort.Count[uint64](26, 2, 2) // 26 has fewer nodes than 2, and also leases and all kinds of state
	traced := func() (hash uint64, events []string) {
		r := sim.Run(seed, 0, func(at time.Duration, text string) { events = append(events, fmt.Sprint(at, " ", text)) })
		return r.Hash, events
	}
	hash, events := traced()
	if silent := sim.Run(seed, 0, nil).Hash; silent != hash {
		_, others := traced()
		for i := range min(len(events), len(others)) {
			if events[i] != others[i] {
				t.Fatalf("seed %d: event %d is %q in one run and %q in the other, want equal events", seed, i, events[i], others[i])
			}
		}
		t.Errorf("seed %d: the runs have %d and %d equal events, but with a trace the hash is %d, without it %d", seed, len(events), len(others), hash, silent)
	}
	if sim.Run(effort.Count[uint64](9, 3, 3), 0, nil).Hash == hash {
		t.Error("seeds with different numbers have the same hash of events, want different ones")
	}
}
