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
)

const (
	moveShards   = 300
	moveEntities = 100_000
	moveRate     = 5_000
	// moveTrial is the duration of a trial of a rate; its first half does not count.
	moveTrial = 4 * time.Second
	// moveControl is the duration of the load before a node joins.
	moveControl = 20 * time.Second
	// minPause is the minimum of these durations in a run with reduced sizes.
	minPause = 500 * time.Millisecond

	maxMove, maxMoveP999, maxMoveLongest = 60, 500, 2_000
)

type moved struct {
	strained

	up, balanced time.Time
	spread       map[string]int
	quiet, busy  []time.Duration
}

// shardMove measures a third node that joins two others under load: the time until each hosts a
// third of the shards, and the latency of asks. The limit is the latency before the join.
func shardMove(ctx context.Context, b *run) ([]Result, error) {
	var took, p999, longest, failed []float64
	var details []string
	var rate int
	err := b.runs("", func() error {
		return b.withWorkers(ctx, func(ctx context.Context, w *workers) error {
			m, err := b.move(ctx, w)
			if err != nil {
				return err
			}
			rate = m.rate
			took = append(took, m.balanced.Sub(m.up).Seconds())
			p999, longest = append(p999, ms(percentile(m.busy, 0.999))), append(longest, ms(percentile(m.busy, 1)))
			failed = append(failed, float64(m.failed+m.lost))
			details = append(details, fmt.Sprintf("%.0f asks a second reached, spread %s; before: p50 %v, p99.9 %v, longest %v; during the move: p50 %v",
				m.reached, spreadText(m.spread), round(percentile(m.quiet, 0.5)), round(percentile(m.quiet, 0.999)), round(percentile(m.quiet, 1)), round(percentile(m.busy, 0.5))))
			details = append(details, m.errors...)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	settings := fmt.Sprintf("3rd process joins 2 with %d shards, %d entities, %d asks a second from both, half are stored; from Up until balanced", b.moveShards(), b.moveEntities(), rate)
	if rate < b.moveRate() {
		settings += fmt.Sprintf("; %d asks a second are too many for this machine", b.moveRate())
	}
	return []Result{
		atMost(slices.Max(took), "s to balanced", maxMove, settings, strings.Join(details, "; ")),
		atMost(slices.Max(failed), "failed asks", 0, "the same", ""),
		atMost(slices.Max(p999), "ms p99.9", maxMoveP999, "the same, from when they were due", ""),
		atMost(slices.Max(longest), "ms longest", maxMoveLongest, "the same", ""),
	}, nil
}

func (b *run) moveShards() int   { return b.scaled(moveShards, 3) }
func (b *run) moveEntities() int { return b.scaled(moveEntities, 120) }
func (b *run) moveRate() int     { return b.scaled(moveRate, 100) }

func (b *run) move(ctx context.Context, w *workers) (m moved, err error) {
	s := b.shardSetup(2)
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), s.Schema)) }()
	b.progress("2 processes join")
	if err = w.joinAll(ctx, s, "n1", "n2"); err != nil {
		return m, err
	}
	two := slices.Clone(w.all)
	var began, joins time.Time
	if m.strained, err = b.strain(ctx, two, func() (err error) {
		if err = pause(ctx, b.short(moveTrial/2, minPause)); err != nil { // warm-up
			return err
		}
		began = time.Now()
		if err = pause(ctx, b.short(moveControl, minPause)); err != nil {
			return err
		}
		joins = time.Now()
		_, up, err := w.join(ctx, "n3", s)
		if m.up = up.At; err != nil {
			return err
		}
		return b.awaitBalance(ctx, &m, two[0], 3)
	}); err != nil {
		return m, err
	}
	if m.quiet, err = b.between(two, began, joins); err == nil {
		m.busy, err = b.between(two, m.up, m.balanced)
	}
	return m, err
}

func (b *run) shardSetup(regions int) setup {
	return setup{Shards: b.moveShards(), Regions: regions, DSN: b.dsn, Schema: newSchema()}
}

type strained struct {
	rate         int     // asks per second
	reached      float64 // achieved rate
	failed, lost int
	errors       []string
}

// strain applies a load at a sustainable rate while another function runs, and checks that no
// acknowledged command is lost.
func (b *run) strain(ctx context.Context, all []*worker, happens func() error) (s strained, err error) {
	b.progress("starting %d entities", b.moveEntities())
	if _, err = b.parts(all, order{Do: orderWake}); err != nil {
		return s, err
	}
	if s.rate, err = b.calibrate(ctx, all); err != nil {
		return s, err
	}
	b.progress("%d asks a second", s.rate)
	if _, err = b.parts(all, order{Do: orderLoad, Rate: s.rate / len(all)}); err != nil {
		return s, err
	}
	if err = happens(); err != nil {
		return s, err
	}
	halts, err := b.parts(all, order{Do: orderHalt})
	if err != nil {
		return s, err
	}
	for _, h := range halts {
		s.failed, s.errors, s.reached = s.failed+h.Failed, append(s.errors, h.Errors...), s.reached+h.rate()
	}
	checks, err := b.parts(all, order{Do: orderLost})
	for _, a := range checks {
		s.lost += a.Lost
	}
	return s, err
}

// parts sends an order to all processes, each with its part of the entities.
func (b *run) parts(all []*worker, o order) ([]result, error) {
	return eachOwn(all, func(i int) order {
		o := o
		o.Count, o.Part, o.Parts = b.moveEntities(), i, len(all)
		return o
	})
}

// calibrate finds a sustainable rate: few asks are open at the end, and 90 % of the asks take less
// than 100 ms.
func (b *run) calibrate(ctx context.Context, all []*worker) (int, error) {
	rate := b.moveRate()
	for {
		b.progress("trying %d asks a second", rate)
		if _, err := b.parts(all, order{Do: orderLoad, Rate: rate / len(all)}); err != nil {
			return 0, err
		}
		if err := pause(ctx, b.short(moveTrial, minPause)); err != nil {
			return 0, err
		}
		to := time.Now()
		answers, err := b.parts(all, order{Do: orderHalt})
		if err != nil {
			return 0, err
		}
		open := 0
		for _, a := range answers {
			open += a.Open
			if a.Failed > 0 {
				return 0, fmt.Errorf("%d asks failed on a quiet cluster: %s", a.Failed, strings.Join(a.Errors, "; "))
			}
		}
		times, err := b.between(all, to.Add(-b.short(moveTrial, minPause)/2), to)
		if err != nil {
			return 0, err
		}
		if open <= rate/10 && percentile(times, 0.9) < 100*time.Millisecond || rate <= 100 {
			return rate, nil
		}
		rate = rate * 7 / 10
	}
}

func (*run) between(all []*worker, from, to time.Time) (took []time.Duration, err error) {
	answers, err := each(all, order{Do: orderTimes, Since: from, Until: to})
	for _, a := range answers {
		took = append(took, a.Times...)
	}
	slices.Sort(took)
	return took, err
}

// awaitBalance waits until the nodes host all shards and their numbers differ by at most one.
func (b *run) awaitBalance(ctx context.Context, m *moved, from *worker, nodes int) error {
	err := until(ctx, 100*time.Millisecond, func(context.Context) (bool, error) {
		r, err := from.do(order{Do: orderHomes})
		m.spread, m.balanced = r.Homes, r.At
		b.progress("shards: %s", spreadText(r.Homes))
		sum, least, most := 0, b.moveShards(), 0
		for _, n := range r.Homes {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		return len(r.Homes) == nodes && sum == b.moveShards() && most-least <= 1, err
	})
	if err != nil {
		return fmt.Errorf("wait for an even spread of shards, now %s: %w", spreadText(m.spread), err)
	}
	return nil
}

func spreadText(homes map[string]int) string {
	var all []string
	for name, n := range homes {
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func round(d time.Duration) time.Duration {
	if d > 100*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
