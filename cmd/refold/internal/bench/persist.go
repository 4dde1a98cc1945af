// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/eventsourcing"
)

const (
	persistEntities = 1000
	persistCallers  = 1000
)

// persist measures asks that persist one event each.
func persist(ctx context.Context, b *run) ([]Result, error) {
	p := newNotes()
	var samples []time.Duration
	var rows, orders []float64 // on PostgreSQL: single rows, and bulk inserts with one order over all IDs
	var ways []string          // the fastest bulk insert of each round
	limits, values, err := b.alternate(
		func() (float64, error) {
			if b.scheme != "postgres" {
				return b.persistLimit(p)
			}
			_, single, err := b.rawRows(ctx, p, 16)
			if err != nil {
				return 0, err
			}
			order, _, err := b.rawBulk(ctx, p, true)
			if err != nil {
				return 0, err
			}
			best, way, err := b.rawBulk(ctx, p, false)
			rows, orders, ways = append(rows, single), append(orders, order), append(ways, way)
			return best, err
		},
		func() (float64, error) {
			c, err := b.adding(ctx, p, persistEntities, persistCallers)
			samples = append(samples, c.samples...)
			return c.rate(), err
		})
	if err != nil {
		return nil, err
	}
	p50, p99 := percentile(samples, 0.5), percentile(samples, 0.99)
	limit, value := median(limits), median(values)
	goal := map[string]float64{"leveldb": 0.45, "inmem": 0.35, "postgres": 0.50}[b.scheme]
	settings := fmt.Sprintf("%d entities, %d callers, 200-byte events, median of %d", persistEntities, persistCallers, len(values))
	rate := Result{
		Value: value, Unit: "asks/s", Limit: limit, Ratio: value / limit, Goal: goal, Better: higher,
		Settings: settings, Detail: fmt.Sprintf("p50 %v, p99 %v", p50.Round(time.Microsecond), p99.Round(time.Microsecond)),
	}.judge()
	switch b.scheme {
	case "inmem":
		return []Result{rate}, nil
	case "postgres":
		rate.Detail += "; limit is the best of bulk inserts: " + strings.Join(slices.Compact(slices.Sorted(slices.Values(ways))), ", ")
		single, order := median(rows), median(orders)
		return []Result{rate, Result{
			Value: value, Unit: "asks/s", Limit: order, Ratio: value / order, Goal: goal, Better: higher,
			Settings: settings, Detail: "the limit inserts with one order over all IDs, which read sides need: an identity column and its index",
		}.judge(), Result{
			Value: value, Unit: "asks/s", Limit: single, Ratio: value / single, Goal: 4, Better: higher,
			Settings: settings, Detail: "the limit is single rows, one transaction each, from 16 connections",
		}.judge()}, nil
	}
	tail := Result{
		Value: ms(p99), Unit: "ms p99", Limit: ms(p50), Ratio: ms(p99) / ms(p50), Goal: 15, Better: lower,
		Settings: settings, Detail: "the limit is the p50 of the same asks",
	}.judge()
	return []Result{rate, tail}, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// persistLimit measures the raw limit of persist.
func (b *run) persistLimit(p notes) (float64, error) {
	if b.scheme == "inmem" {
		return b.rawChannels(persistEntities, persistCallers, p)
	}
	return b.rawBatches(p, 1000)
}

// adding lets callers add to entities for a time, and verifies the sums.
func (b *run) adding(ctx context.Context, p notes, entities, callers int) (c crowd, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rt, h, err := host(ctx, s, counters(0, eventsourcing.Snapshots[counter, event]{}))
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	targets := refs(h, entities)
	for _, to := range targets { // start all entities
		if _, err = eventsourcing.Ask(ctx, to, read{}); err != nil {
			return c, err
		}
	}
	if c, err = addAll(ctx, targets, callers, b.settings.Length, p); err != nil {
		return c, err
	}
	return c, verify(ctx, s, targets, int64(c.ops))
}

// slowDisk is the minimum latency of a synced write for a verdict: with a faster sync, group commit
// has no effect.
const slowDisk = 60 * time.Microsecond

// hot measures one entity with many callers.
func hot(ctx context.Context, b *run) ([]Result, error) {
	p := newNotes()
	var synced []time.Duration
	const callers = 256
	limits, values, err := b.alternate(
		func() (float64, error) {
			samples, rate, err := b.rawSingle(ctx, p)
			synced = append(synced, samples...)
			return rate, err
		},
		func() (float64, error) {
			c, err := b.adding(ctx, p, 1, callers)
			return c.rate(), err
		})
	if err != nil {
		return nil, err
	}
	limit, value := median(limits), median(values)
	goal := 12.0
	if b.scheme == "postgres" {
		goal = 8
	}
	r := Result{
		Value: value, Unit: "asks/s", Limit: limit, Ratio: value / limit, Goal: goal, Better: higher,
		Settings: fmt.Sprintf("1 entity, %d callers, pipelining, fsync, median of %d", callers, len(values)),
		Detail:   fmt.Sprintf("a raw synced write takes %v", percentile(synced, 0.5).Round(time.Microsecond)),
	}
	return []Result{b.diskBound(r, synced)}, nil
}

// rawSingle writes single entries from one goroutine, each durable before the next.
func (b *run) rawSingle(ctx context.Context, p notes) (samples []time.Duration, rate float64, err error) {
	if b.scheme == "postgres" {
		return b.rawRows(ctx, p, 1)
	}
	return b.rawSingles(p)
}

// diskBound judges a result if a sync takes time on this disk.
func (b *run) diskBound(r Result, synced []time.Duration) Result {
	if percentile(synced, 0.5) < slowDisk {
		return r
	}
	return r.judge()
}

// latency measures one caller of one entity.
func latency(ctx context.Context, b *run) ([]Result, error) {
	p := newNotes()
	var synced, asked []time.Duration
	_, values, err := b.alternate(
		func() (float64, error) {
			samples, rate, err := b.rawSingle(ctx, p)
			synced = append(synced, samples...)
			return rate, err
		},
		func() (float64, error) {
			samples, err := b.asking(ctx, p)
			asked = append(asked, samples...)
			return float64(len(samples)), err
		})
	if err != nil {
		return nil, err
	}
	type quantile struct {
		name     string
		quantile float64
		goal     float64
	}
	quantiles := []quantile{{"µs p50", 0.5, 1.3}, {"µs p99", 0.99, 2.0}}
	if b.scheme == "postgres" {
		quantiles = []quantile{{"µs p50", 0.5, 1.5}}
	}
	var results []Result
	for _, x := range quantiles {
		limit, value := percentile(synced, x.quantile), percentile(asked, x.quantile)
		results = append(results, b.diskBound(Result{
			Value: 1000 * ms(value), Unit: x.name, Limit: 1000 * ms(limit), Ratio: float64(value) / float64(limit), Goal: x.goal, Better: lower,
			Settings: fmt.Sprintf("1 caller, 1 entity, fsync, %d rounds", len(values)),
		}, synced))
	}
	return results, nil
}

// asking measures every ask of a single caller.
func (b *run) asking(ctx context.Context, p notes) (samples []time.Duration, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rt, h, err := host(ctx, s, counters(0, eventsourcing.Snapshots[counter, event]{}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	to := h.Ref("0")
	if _, err := eventsourcing.Ask(ctx, to, read{}); err != nil {
		return nil, err
	}
	start := time.Now()
	var n int64
	for n == 0 || time.Since(start) < b.settings.Length { // at least once
		n++
		began := time.Now()
		sum, err := eventsourcing.Ask(ctx, to, add{N: 1, Note: p.bytes(int(n), noteSize)})
		if err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(began))
		if sum != n {
			return nil, fmt.Errorf("wrong reply %d, want %d", sum, n)
		}
	}
	return samples, verify(ctx, s, []eventsourcing.Ref[counter]{to}, n)
}
