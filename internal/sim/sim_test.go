// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
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
)

var (
	ranges = flag.String("sim.ranges", "300001", "where the ranges of TestEveryRangeNotices begin, separated by commas")
	length = flag.Uint64("sim.range", 2, "how many seeds each of them has")
	first  = flag.Uint64("sim.first", 1, "the first seed of TestSeeds")
	seeds  = flag.Uint64("sim.seeds", 6, "how many seeds TestSeeds simulates")
)

// TestSeeds simulates some seeds; make sim does more of them.
func TestSeeds(t *testing.T) {
	t.Parallel()
	all := sim.Coverage{}
	sim.Many(t.Context(), *first, *seeds, runtime.GOMAXPROCS(0), func(r sim.Result) {
		all.Add(r.Coverage)
		if r.Violation != nil {
			t.Errorf("seed %d, %v: %v\nrepeat with: make sim SEED=%d", r.Seed, r.Plan, r.Violation, r.Seed)
		}
		if size := r.Size(); r.Violation == nil && !size.Enough() {
			t.Errorf("seed %d is too small: %v", r.Seed, &size)
		}
	})
	if missing := all.Missing(*seeds); len(missing) > 0 {
		t.Errorf("events that never occurred: %q", missing)
	}
}

// TestEveryRangeNotices is for mutants. It fails if an invariant is broken in each of some ranges
// of seeds, which correct code never causes.
func TestEveryRangeNotices(t *testing.T) {
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
		sim.Many(ctx, from, *length, runtime.GOMAXPROCS(0), func(r sim.Result) {
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
		t.Errorf("in each range:\n%s", strings.Join(noticed, "\n"))
	}
}

// TestSameSeedSameStory: all events depend only on the seed.
func TestSameSeedSameStory(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{2} {
		var stories [2][]string
		var hashes [2]uint64
		for i := range stories {
			r := sim.Run(seed, sim.Options{Trace: func(at time.Duration, text string) { stories[i] = append(stories[i], fmt.Sprint(at, " ", text)) }})
			hashes[i] = r.Hash
		}
		if hashes[0] != hashes[1] {
			for i := range stories[0] {
				if i >= len(stories[1]) || stories[0][i] != stories[1][i] {
					t.Fatalf("seed %d: two runs differ from here on: %s", seed, stories[0][i])
				}
			}
			t.Errorf("seed %d: two runs differ", seed)
		}
		if silent := sim.Run(seed, sim.Options{}).Hash; silent != hashes[0] {
			t.Errorf("seed %d: the trace changes the events", seed)
		}
	}
	if sim.Run(2, sim.Options{}).Hash == sim.Run(3, sim.Options{}).Hash {
		t.Error("two seeds have the same events")
	}
}
