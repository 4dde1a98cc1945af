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
	// moveTrial is the duration of a trial of a rate; its first half does not count.
	moveTrial = 4 * time.Second
	// moveControl is the duration of the load before a node joins.
	moveControl = 20 * time.Second
	// movePatience is the time after which the rebalance has failed.
	movePatience = 3 * time.Minute

	maxMove, maxMoveP999, maxMoveLongest = 60, 500, 2_000
)

// moved is the result of a rebalance.
type moved struct {
	strained

	up, balanced time.Time
	spread       map[string]int
	quiet, busy  []time.Duration
}

// shardMove measures a third node that joins two others under load: the time until each hosts a
// third of the shards, and the latency of asks, beside the same load before.
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
	return []Result{
		atMost(slices.Max(took), "s to balanced", maxMove, settings, strings.Join(details, "; ")),
		atMost(slices.Max(failed), "failed asks", 0, "the same", ""),
		atMost(slices.Max(p999), "ms p99.9", maxMoveP999, "the same, from when they were due", ""),
		atMost(slices.Max(longest), "ms longest", maxMoveLongest, "the same", ""),
	}, nil
}

func (b *run) moveShards() int   { return max(3, b.scaled(moveShards)) }
func (b *run) moveEntities() int { return max(120, b.scaled(moveEntities)) }
func (b *run) moveRate() int     { return max(100, b.scaled(moveRate)) }

// short returns a shorter duration in a trial run.
func (b *run) short(d time.Duration) time.Duration {
	return max(500*time.Millisecond, d/time.Duration(max(1, b.settings.Scale)))
}

// move lets a node join once.
func (b *run) move(ctx context.Context) (m moved, err error) {
	setup := b.shardSetup(2)
	c, err := newShardCrew(b.settings.ShardNode) //nolint:contextcheck // the server lives until close
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, c.close(), b.drop(context.WithoutCancel(ctx), setup.Schema)) }()
	b.progress("2 processes join")
	if err = c.joinAll(ctx, 2, setup); err != nil {
		return m, err
	}
	two := slices.Clone(c.hands)
	var began, joins time.Time
	if m.strained, err = b.strain(ctx, two, func() (err error) {
		if err = pause(ctx, b.short(moveTrial/2)); err != nil { // warm-up
			return err
		}
		began = time.Now()
		if err = pause(ctx, b.short(moveControl)); err != nil {
			return err
		}
		joins = time.Now()
		if m.up, err = c.join(ctx, "n3", setup); err == nil {
			m.spread, m.balanced, err = b.balanced(ctx, two[0], 3)
		}
		return err
	}); err != nil {
		return m, err
	}
	if m.quiet, err = b.between(two, began, joins); err == nil {
		m.busy, err = b.between(two, m.up, m.balanced)
	}
	return m, err
}

// shardSetup returns the configuration of nodes under load.
func (b *run) shardSetup(regions int) shardSetup {
	schema := "refold_bench_" + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // no secret
	return shardSetup{Shards: b.moveShards(), Regions: regions, DSN: b.dsn, Schema: schema}
}

// strained is the result of a load.
type strained struct {
	rate         int     // asks per second
	reached      float64 // achieved rate
	failed, lost int
	errors       []string
}

// strain applies a load at a sustainable rate while another function runs, and checks that no
// acknowledged command is lost.
func (b *run) strain(ctx context.Context, hands []*hand, happens func() error) (s strained, err error) {
	b.progress("%d entities wake", b.moveEntities())
	if _, err = b.parts(hands, shardOrder{Do: shardFill}); err != nil {
		return s, err
	}
	if s.rate, err = b.calibrate(ctx, hands); err != nil {
		return s, err
	}
	b.progress("%d asks a second", s.rate)
	if _, err = b.parts(hands, shardOrder{Do: shardLoad, Rate: s.rate / len(hands)}); err != nil {
		return s, err
	}
	if err = happens(); err != nil {
		return s, err
	}
	halts, err := b.parts(hands, shardOrder{Do: shardHalt})
	if err != nil {
		return s, err
	}
	for _, h := range halts {
		s.failed, s.errors, s.reached = s.failed+h.Failed, append(s.errors, h.First...), s.reached+h.rate()
	}
	checks, err := b.parts(hands, shardOrder{Do: shardCheck})
	for _, a := range checks {
		s.lost += a.Lost
	}
	return s, err
}

// parts sends an order to all processes, each with its part of the entities.
func (b *run) parts(hands []*hand, o shardOrder) ([]shardAnswer, error) {
	return shardEach(hands, func(i int) shardOrder {
		o := o
		o.Count, o.Part, o.Parts = b.moveEntities(), i, len(hands)
		return o
	})
}

// calibrate finds a sustainable rate: all asks are answered within a tenth of a second on average.
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

// between returns the durations of asks that were due within a time.
func (*run) between(hands []*hand, from, to time.Time) (took []time.Duration, err error) {
	answers, err := shardEach(hands, func(int) shardOrder { return shardOrder{Do: shardTimes, From: from, To: to} })
	for _, a := range answers {
		took = append(took, a.Times...)
	}
	slices.Sort(took)
	return took, err
}

// balanced waits until the nodes host all shards and their numbers differ by at most one.
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

// spreadText formats the numbers of shards per node.
func spreadText(homes map[string]int) string {
	var all []string
	for name, n := range homes {
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// round rounds a duration for display.
func round(d time.Duration) time.Duration {
	if d > 100*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
