// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/eventsourcing"
)

const (
	persistEntities = 1000
	persistCallers  = 1000

	// retainEntities is so small that each entity deletes events several times during a measurement.
	retainEntities = 100
	retainEvery    = 100
	retainKeep     = 2
)

// persist measures asks that persist one event each.
func persist(ctx context.Context, b *run) ([]Result, error) {
	var samples []time.Duration
	// On PostgreSQL: single rows, bulk inserts with one order over all IDs, the asks of few callers, and
	// the fastest bulk insert of each round.
	var rows, orders, few []float64
	var ways []string
	c, err := b.compare(
		func() (float64, error) {
			switch b.scheme {
			case "inmem":
				return b.rawChannels(persistEntities, persistCallers)
			case "leveldb":
				_, rate, err := b.rawBatches(1000)
				return rate, err
			}
			_, single, err := b.rawInserts(ctx, rawWay{size: 1, conn: 16}, false, b.settings.Length)
			if err != nil {
				return 0, err
			}
			order, _, err := b.rawBulk(ctx, true)
			if err != nil {
				return 0, err
			}
			best, way, err := b.rawBulk(ctx, false)
			rows, orders, ways = append(rows, single), append(orders, order), append(ways, way)
			return best, err
		},
		func() (float64, error) {
			t, err := b.adding(ctx, persistEntities, persistCallers)
			samples = append(samples, t.samples...)
			if err == nil && b.scheme == "postgres" {
				var some throughput
				some, err = b.adding(ctx, persistEntities, askCallers)
				few = append(few, some.rate())
			}
			return t.rate(), err
		})
	if err != nil {
		return nil, err
	}
	p50, p99 := percentile(samples, 0.5), percentile(samples, 0.99)
	row := Result{
		Unit: "asks/s", Goal: map[string]float64{"leveldb": 0.60, "inmem": 0.45, "postgres": 0.50}[b.scheme], Better: higher,
		Settings: fmt.Sprintf("%d entities, %d callers, 200-byte events, median of %d", persistEntities, persistCallers, b.settings.Rounds),
		Detail:   fmt.Sprintf("p50 %v, p99 %v", p50.Round(time.Microsecond), p99.Round(time.Microsecond)),
	}
	results := []Result{c.result(row)}
	switch b.scheme {
	case "postgres":
		results[0].Detail += "; limit is the best of bulk inserts: " + strings.Join(slices.Compact(slices.Sorted(slices.Values(ways))), ", ")
		row.Detail = "the limit includes an order over all IDs, which projections need: an identity column and its index"
		results = append(results, row.of(median(c.values), median(orders)))
		row.Goal, row.Detail = 4, "the limit is single rows, one transaction each, from 16 connections"
		results = append(results, row.of(median(c.values), median(rows)))
		row.Goal, row.Settings = 2.5, fmt.Sprintf("%d entities, %d callers, 200-byte events, median of %d", persistEntities, askCallers, b.settings.Rounds)
		results = append(results, row.of(median(few), median(rows)))
	case "leveldb":
		row = Result{Unit: "ms p99", Goal: 15, Better: lower, Settings: row.Settings, Detail: "the limit is the p50 of the same asks"}
		results = append(results, row.of(ms(p99), ms(p50)))
	}
	return results, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// adding lets callers add to entities for a time, and verifies the sums.
func (b *run) adding(ctx context.Context, entities, callers int) (throughput, error) {
	return b.addingWith(ctx, eventsourcing.Snapshots[counter, event]{}, entities, callers)
}

func (b *run) addingWith(ctx context.Context, snapshots eventsourcing.Snapshots[counter, event], entities, callers int) (t throughput, err error) {
	err = b.opened(ctx, func(s *database) error {
		return s.host(ctx, counters(0, snapshots), func(h *local) error {
			targets := refs(h, entities)
			for _, to := range targets {
				if err = h.Start(ctx, to.ID()); err != nil {
					return err
				}
			}
			if t, err = addAll(ctx, targets, callers, b.settings.Length); err != nil {
				return err
			}
			if snapshots.DeleteEvents {
				return verifySum(ctx, targets, int64(t.ops))
			}
			return verify(ctx, s, targets, int64(t.ops))
		})
	})
	return t, err
}

// asks measures asks of few callers in memory: those that persist one event each, and those that only
// read. The limit is bare channels.
func asks(ctx context.Context, b *run) ([]Result, error) {
	limit := func() (float64, error) { return b.rawChannels(askEntities, askCallers) }
	var persisting, reading []time.Duration
	persists, err := b.compare(limit, func() (float64, error) {
		t, failed := b.adding(ctx, askEntities, askCallers)
		persisting = append(persisting, t.samples...)
		return t.rate(), failed
	})
	if err != nil {
		return nil, err
	}
	reads, err := b.compare(limit, func() (float64, error) {
		t, failed := b.reading(ctx, askEntities, askCallers)
		reading = append(reading, t.samples...)
		return t.rate(), failed
	})
	if err != nil {
		return nil, err
	}
	row := func(goal float64, settings string, samples []time.Duration) Result {
		return Result{
			Unit: "asks/s", Goal: goal, Better: higher,
			Settings: fmt.Sprintf("%d entities, %d callers, %s, median of %d", askEntities, askCallers, settings, b.settings.Rounds),
			Detail:   fmt.Sprintf("p50 %v, p99 %v, p99.9 %v", percentile(samples, 0.5), percentile(samples, 0.99), percentile(samples, 0.999)),
		}
	}
	const events = "200-byte events"
	p50 := float64(percentile(persisting, 0.5)) / float64(time.Microsecond)
	return []Result{
		persists.result(row(0.45, events, persisting)),
		atMost(p50, "µs p50", 20, fmt.Sprintf("%d entities, %d callers, %s", askEntities, askCallers, events), ""),
		reads.result(row(1, "no events", reading)),
	}, nil
}

// reading lets callers read random counters for a time.
func (b *run) reading(ctx context.Context, entities, callers int) (t throughput, err error) {
	err = b.hosted(ctx, 0, func(_ *database, h *local) (err error) {
		targets := refs(h, entities)
		for _, to := range targets {
			if err = occupy(ctx, to); err != nil {
				return err
			}
		}
		rngs := randoms(callers)
		t, err = together(callers, b.settings.Length, func(caller, _ int) (err error) {
			_, err = eventsourcing.Ask(ctx, targets[rngs[caller].IntN(len(targets))], read{})
			return err
		})
		return err
	})
	return t, err
}

// retention measures asks that persist one event each, while snapshots are saved and deleted and events are
// deleted. The limit is the same without snapshots.
func retention(ctx context.Context, b *run) ([]Result, error) {
	rate := func(snapshots eventsourcing.Snapshots[counter, event]) func() (float64, error) {
		return func() (float64, error) {
			t, err := b.addingWith(ctx, snapshots, retainEntities, persistCallers)
			return t.rate(), err
		}
	}
	c, err := b.compare(
		rate(eventsourcing.Snapshots[counter, event]{}),
		rate(eventsourcing.Snapshots[counter, event]{Every: retainEvery, Keep: retainKeep, DeleteEvents: true}))
	return []Result{c.result(Result{
		Unit: "asks/s", Goal: 0.80, Better: higher,
		Settings: fmt.Sprintf("%d entities, %d callers, 200-byte events, a snapshot each %d events, %d are kept, with DeleteEvents, median of %d; limit: without snapshots",
			retainEntities, persistCallers, retainEvery, retainKeep, b.settings.Rounds),
	})}, err
}

// slowDisk is the minimum latency of a synced write for a verdict: with a faster sync, group commit
// has no effect.
const slowDisk = 60 * time.Microsecond

func hot(ctx context.Context, b *run) ([]Result, error) {
	var synced []time.Duration
	const callers = 256
	c, err := b.compare(b.rawSingle(ctx, &synced), func() (float64, error) {
		t, err := b.adding(ctx, 1, callers)
		return t.rate(), err
	})
	if err != nil {
		return nil, err
	}
	return []Result{diskBound(c.result(Result{
		Unit: "asks/s", Goal: map[string]float64{"leveldb": 12, "postgres": 8}[b.scheme], Better: higher,
		Settings: fmt.Sprintf("1 entity, %d callers, pipelining, fsync, median of %d", callers, b.settings.Rounds),
		Detail:   fmt.Sprintf("a raw synced write takes %v", percentile(synced, 0.5).Round(time.Microsecond)),
	}), synced)}, nil
}

// rawSingle returns a function that writes single entries from one goroutine and adds their
// latencies to samples. Each entry is durable before the next one is written.
func (b *run) rawSingle(ctx context.Context, samples *[]time.Duration) func() (float64, error) {
	return func() (rate float64, err error) {
		var some []time.Duration
		if b.scheme == "postgres" {
			some, rate, err = b.rawInserts(ctx, rawWay{size: 1, conn: 1}, false, b.settings.Length)
		} else {
			some, rate, err = b.rawBatches(1)
		}
		*samples = append(*samples, some...)
		return rate, err
	}
}

// diskBound removes the verdict if a synced write on this disk is faster than slowDisk.
func diskBound(r Result, synced []time.Duration) Result {
	if percentile(synced, 0.5) < slowDisk {
		r.Met = nil
	}
	return r
}

func latency(ctx context.Context, b *run) ([]Result, error) {
	var synced, asked []time.Duration
	if _, err := b.compare(b.rawSingle(ctx, &synced), func() (float64, error) { return 0, b.asking(ctx, &asked) }); err != nil {
		return nil, err
	}
	row := func(name string, quantile, goal float64) Result {
		r := Result{Unit: name, Goal: goal, Better: lower, Settings: fmt.Sprintf("1 caller, 1 entity, fsync, %d rounds", b.settings.Rounds)}
		return diskBound(r.of(1000*ms(percentile(asked, quantile)), 1000*ms(percentile(synced, quantile))), synced)
	}
	if b.scheme == "postgres" {
		return []Result{row("µs p50", 0.5, 1.25)}, nil
	}
	return []Result{row("µs p50", 0.5, 1.1), row("µs p99", 0.99, 2.0)}, nil
}

// asking lets a single caller ask, and adds the latency of each ask to samples.
func (b *run) asking(ctx context.Context, samples *[]time.Duration) error {
	return b.hosted(ctx, 0, func(s *database, h *local) error {
		to := h.Ref("0")
		if err := h.Start(ctx, to.ID()); err != nil {
			return err
		}
		start := time.Now()
		var n int64
		for n == 0 || time.Since(start) < b.settings.Length { // at least once
			n++
			began := time.Now()
			sum, err := eventsourcing.Ask(ctx, to, add{N: 1, Note: noteOf(int(n), noteSize)})
			if err != nil {
				return err
			}
			*samples = append(*samples, time.Since(began))
			if sum != n {
				return fmt.Errorf("wrong reply %d, want %d", sum, n)
			}
		}
		return verify(ctx, s, []eventsourcing.Ref[counter]{to}, n)
	})
}
