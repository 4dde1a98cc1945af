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
	"strings"
	"time"
)

const (
	moveShards   = 300
	moveEntities = 100_000
	moveRate     = 5_000
	// moveTrial is for how long a rate is tried, of which the first half does not count.
	moveTrial = 4 * time.Second
	// moveControl is how long the load goes on before a node joins.
	moveControl = 20 * time.Second
	// movePatience is when the shards will never be balanced.
	movePatience = 3 * time.Minute

	maxMove, maxMoveP999, maxMoveLongest = 60, 500, 2_000
)

// moved is what has come of a rebalance.
type moved struct {
	rate         int
	up, balanced time.Time
	spread       map[string]int
	quiet, busy  []time.Duration
	failed, lost int
	errors       []string
	reached      float64
}

// shardMove measures a third node that joins two others which are asked all the time: how long it takes until each has a third of the
// shards, and what asks have to wait, beside the same load before.
func shardMove(ctx context.Context, b *run) ([]Result, error) {
	var took, p999, longest, failed []float64
	var details []string
	var rate int
	for i := range max(1, b.settings.Runs) {
		b.progress("run %d of %d", i+1, max(1, b.settings.Runs))
		m, err := b.move(ctx)
		if err != nil {
			return nil, err
		}
		rate = m.rate
		took = append(took, m.balanced.Sub(m.up).Seconds())
		p999, longest = append(p999, ms(percentile(m.busy, 0.999))), append(longest, ms(percentile(m.busy, 1)))
		failed = append(failed, float64(m.failed+m.lost))
		details = append(details, fmt.Sprintf("%.0f asks a second reached, spread %s; before: p50 %v, p99.9 %v, longest %v; meanwhile: p50 %v",
			m.reached, spreadText(m.spread), round(percentile(m.quiet, 0.5)), round(percentile(m.quiet, 0.999)), round(percentile(m.quiet, 1)), round(percentile(m.busy, 0.5))))
		details = append(details, m.errors...)
	}
	settings := fmt.Sprintf("3rd process joins 2 with %d shards, %d entities, %d asks a second from both, half are stored; from Up until balanced", b.moveShards(), b.moveEntities(), rate)
	if rate < b.moveRate() {
		settings += fmt.Sprintf("; %d a second are too many here", b.moveRate())
	}
	row := func(values []float64, unit string, goal float64, settings, detail string) Result {
		value := slices.Max(values)
		return Result{Value: value, Unit: unit, Ratio: value, Goal: goal, Better: lower, Settings: settings, Detail: detail}.judge()
	}
	return []Result{
		row(took, "s to balanced", maxMove, settings, strings.Join(details, "; ")),
		row(failed, "failed asks", 0, "the same", ""),
		row(p999, "ms p99.9", maxMoveP999, "the same, from when they were due", ""),
		row(longest, "ms longest", maxMoveLongest, "the same", ""),
	}, nil
}

func (b *run) moveShards() int   { return max(3, b.scaled(moveShards)) }
func (b *run) moveEntities() int { return max(120, b.scaled(moveEntities)) }
func (b *run) moveRate() int     { return max(100, b.scaled(moveRate)) }

// short is a time that is shorter in a trial run.
func (b *run) short(d time.Duration) time.Duration {
	return max(500*time.Millisecond, d/time.Duration(max(1, b.settings.Scale)))
}

// move lets a node join once.
func (b *run) move(ctx context.Context) (m moved, err error) {
	setup := shardSetup{Shards: b.moveShards(), Regions: 2, DSN: b.dsn, Schema: "refold_bench_" + strconv.FormatUint(rand.Uint64(), 36)} //nolint:gosec // no secret
	c, err := newShardCrew(b.settings.ShardNode)                                                                                         //nolint:contextcheck // the server lives until close
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, c.close(), b.drop(context.WithoutCancel(ctx), setup.Schema)) }()
	b.progress("2 processes join")
	if err = c.joinAll(ctx, 2, setup); err != nil {
		return m, err
	}
	two := slices.Clone(c.hands)
	b.progress("%d entities wake", b.moveEntities())
	if _, err = b.parts(two, shardOrder{Do: shardFill}); err != nil {
		return m, err
	}
	if m.rate, err = b.calibrate(ctx, two); err != nil {
		return m, err
	}
	if _, err = b.parts(two, shardOrder{Do: shardLoad, Rate: m.rate / len(two)}); err != nil {
		return m, err
	}
	b.progress("%d asks a second, before a node joins", m.rate)
	if err = pause(ctx, b.short(moveTrial/2)); err != nil { // until it is warm
		return m, err
	}
	began := time.Now()
	if err = pause(ctx, b.short(moveControl)); err != nil {
		return m, err
	}
	joins := time.Now()
	if m.up, err = c.join(ctx, "n3", setup); err != nil {
		return m, err
	}
	if m.spread, m.balanced, err = b.balanced(ctx, two[0], 3); err != nil {
		return m, err
	}
	halts, err := b.parts(two, shardOrder{Do: shardHalt})
	if err != nil {
		return m, err
	}
	for _, h := range halts {
		m.failed, m.errors, m.reached = m.failed+h.Failed, append(m.errors, h.First...), m.reached+h.rate()
	}
	if m.quiet, err = b.between(two, began, joins); err != nil {
		return m, err
	}
	if m.busy, err = b.between(two, m.up, m.balanced); err != nil {
		return m, err
	}
	checks, err := b.parts(two, shardOrder{Do: shardCheck})
	for _, a := range checks {
		m.lost += a.Lost
	}
	return m, err
}

// parts has processes do the same, each with its part of the entities.
func (b *run) parts(hands []*hand, o shardOrder) ([]shardAnswer, error) {
	return shardEach(hands, func(i int) shardOrder {
		o := o
		o.Count, o.Part, o.Parts = b.moveEntities(), i, len(hands)
		return o
	})
}

// calibrate finds a rate of asks that the machine can do: all are answered within a tenth of a second, on average.
func (b *run) calibrate(ctx context.Context, hands []*hand) (int, error) {
	rate := b.moveRate()
	for {
		b.progress("trying %d asks a second", rate)
		if _, err := b.parts(hands, shardOrder{Do: shardLoad, Rate: rate / len(hands)}); err != nil {
			return 0, err
		}
		if err := pause(ctx, b.short(moveTrial)); err != nil {
			return 0, err
		}
		to := time.Now()
		answers, err := b.parts(hands, shardOrder{Do: shardHalt})
		if err != nil {
			return 0, err
		}
		open := 0
		for _, a := range answers {
			open += a.Open
			if a.Failed > 0 {
				return 0, fmt.Errorf("%d asks failed on a quiet cluster: %s", a.Failed, strings.Join(a.First, "; "))
			}
		}
		times, err := b.between(hands, to.Add(-b.short(moveTrial)/2), to)
		if err != nil {
			return 0, err
		}
		if open <= rate/10 && percentile(times, 0.9) < 100*time.Millisecond || rate <= 100 {
			return rate, nil
		}
		rate = rate * 7 / 10
	}
}

// between returns how long asks took that were due in a time.
func (*run) between(hands []*hand, from, to time.Time) (took []time.Duration, err error) {
	answers, err := shardEach(hands, func(int) shardOrder { return shardOrder{Do: shardTimes, From: from, To: to} })
	for _, a := range answers {
		took = append(took, a.Times...)
	}
	slices.Sort(took)
	return took, err
}

// balanced waits until some nodes have all shards, and none has more than one more than another.
func (b *run) balanced(ctx context.Context, from *hand, nodes int) (map[string]int, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	for {
		a, err := from.shard(shardOrder{Do: shardHomes})
		if err != nil {
			return nil, time.Time{}, err
		}
		sum, least, most := 0, b.moveShards(), 0
		for _, n := range a.Homes {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if len(a.Homes) == nodes && sum == b.moveShards() && most-least <= 1 {
			return a.Homes, a.At, nil
		}
		b.progress("shards: %s", spreadText(a.Homes))
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, time.Time{}, fmt.Errorf("wait for an even spread, it is %s: %w", spreadText(a.Homes), err)
		}
	}
}

// spreadText writes how many shards nodes have.
func spreadText(homes map[string]int) string {
	var all []string
	for name, n := range homes {
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// round leaves what people read.
func round(d time.Duration) time.Duration {
	if d > 100*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
