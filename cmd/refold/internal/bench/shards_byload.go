// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
)

const (
	skewShards, skewNodes = 300, 3
	// skewKeys is the number of keys, which follow a Zipf distribution with this exponent.
	skewKeys     = 10_000
	skewExponent = 1.1
	// skewRate is the number of commands per second, and skewWork the time that each occupies a
	// processor.
	skewRate = 1000
	skewWork = 200 * time.Microsecond
	// skewInterval is the interval of rebalances.
	skewInterval = 3 * time.Second
	// The load is measured for skewBefore before shards move, then skewBetween later for skewAfter.
	skewBefore, skewBetween, skewAfter = 5 * time.Second, 45 * time.Second, 10 * time.Second

	maxSkew, maxSkewMoves = 1.15, 0.2
)

// A worker is an entity that occupies a processor.
type (
	toil struct {
		eventsourcing.Command[toiler, string]
		For time.Duration
	}
	toiled struct{}
	toiler struct{ node string }
)

func (t *toiler) toil(ctx *eventsourcing.Context[toiler, toiled, string], c toil) eventsourcing.Decision[toiler, toiled, string] {
	for began := time.Now(); time.Since(began) < c.For; { // it occupies the processor
	}
	return ctx.Reply(t.node)
}

func toilers(node string) eventsourcing.Type[toiler, toiled] {
	return eventsourcing.Type[toiler, toiled]{
		Name: "toiler", New: func(string) *toiler { return &toiler{node: node} }, Apply: func(*toiler, toiled) {},
		Events: codec.Types(codec.Name[toiled]("toiled")), Commands: eventsourcing.Commands(eventsourcing.On("toil", (*toiler).toil)),
	}
}

// skew is one measurement of allocation.ByLoad.
type skew struct {
	regions []*sharding.Region[toiler]
	keys    func() string

	before, after float64 // the load of the busiest node in relation to the mean
	moved         float64 // fraction of the shards
}

// shardLoad measures the load of the busiest node in relation to the mean, before and after
// allocation.ByLoad has moved shards, and the fraction of the shards that moved.
func shardLoad(ctx context.Context, b *run) ([]Result, error) {
	var before, after, moved []float64
	err := b.rounds(func() error {
		s, err := b.skew(ctx)
		before, after, moved = append(before, s.before), append(after, s.after), append(moved, s.moved)
		return err
	})
	settings := fmt.Sprintf("%d shards, Zipf %.1f over %d keys, %d nodes in one process, embedded NATS, %d commands/s of %v, allocation.ByLoad with its defaults",
		skewShards, skewExponent, skewKeys, skewNodes, skewRate, skewWork)
	return []Result{
		atMost(median(after), "busiest node to mean", maxSkew, settings, fmt.Sprintf("%.2f before", median(before))),
		atMost(median(moved), "of the shards moved", maxSkewMoves, "the same", fmt.Sprintf("%.0f shards", median(moved)*skewShards)),
	}, err
}

func (b *run) skew(ctx context.Context) (s skew, err error) {
	random := randoms(1)[0]
	distribution := rand.NewZipf(random, skewExponent, 1, skewKeys-1)
	s.keys = func() string { return strconv.FormatUint(distribution.Uint64(), 10) }
	err = b.opened(ctx, func(d *database) error {
		return withRegions(ctx, b, d, skewNodes, toilers, func(*ddata.Replicator) sharding.Options {
			return sharding.Options{
				Shards: skewShards, MinMembers: skewNodes, Strategy: sharding.Pure(allocation.ByLoad{}), Tuning: sharding.Tuning{RebalanceInterval: skewInterval},
			}
		}, func(_ *group, regions []*sharding.Region[toiler]) error {
			s.regions = regions
			return s.measure(ctx, b)
		})
	})
	return s, err
}

func (s *skew) measure(ctx context.Context, b *run) error {
	ids, err := idOfEachShard(s.regions[0], skewShards, "first-")
	if err != nil {
		return err
	}
	ask := func(shard int) error {
		_, failed := eventsourcing.Ask(ctx, s.regions[0].Ref(ids[shard]), toil{})
		return failed
	}
	homes, err := homesOf(ctx, s.regions[0], skewShards, ask)
	if err != nil {
		return err
	}
	least := 200 * time.Millisecond
	if s.before, err = s.load(ctx, b.short(skewBefore, least)); err != nil {
		return err
	}
	if _, err = s.load(ctx, b.short(skewBetween, least)); err != nil {
		return err
	}
	if s.after, err = s.load(ctx, b.short(skewAfter, least)); err != nil {
		return err
	}
	last, err := homesOf(ctx, s.regions[0], skewShards, ask)
	for i := range homes {
		if homes[i] != last[i] {
			s.moved += 1.0 / skewShards
		}
	}
	return err
}

// load sends commands at a fixed rate for some time, and returns the number of commands of the
// busiest node in relation to the mean.
func (s *skew) load(ctx context.Context, length time.Duration) (float64, error) {
	var mu sync.Mutex
	var asks sync.WaitGroup
	handled := map[string]float64{}
	var failed error
	began := time.Now()
	for n := 0; time.Since(began) < length; {
		for ; time.Duration(n)*time.Second/skewRate < time.Since(began); n++ {
			ref := s.regions[n%len(s.regions)].Ref(s.keys())
			asks.Go(func() {
				node, err := eventsourcing.Ask(ctx, ref, toil{For: skewWork})
				mu.Lock()
				defer mu.Unlock()
				handled[node]++
				failed = errors.Join(failed, err)
			})
		}
		if err := pause(ctx, loadTick); err != nil {
			return 0, err
		}
	}
	asks.Wait()
	var counts []float64
	sum := 0.0
	for _, r := range handled {
		counts, sum = append(counts, r), sum+r
	}
	if failed != nil || sum == 0 {
		return 0, failed
	}
	return slices.Max(counts) / sum * float64(len(s.regions)), nil
}
