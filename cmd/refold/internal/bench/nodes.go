// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
)

const (
	// nodeStableAfter is StableAfter of the downing strategy.
	nodeStableAfter = 5 * time.Second
	// nodePatience is the time after which a step has failed.
	nodePatience = 2 * time.Minute
	// quietTime is the time over which the CPU use of an idle cluster is measured.
	quietTime = 20 * time.Second

	maxStart, maxDowned, maxProcessor = 5, 15, 1
)

// processes measures a cluster of three processes over a NATS server in this one: the time until
// all are Up, the cost of an idle node, and the time until a killed node is Down.
func processes(ctx context.Context, b *run) ([]Result, error) {
	var started, quiet, downed []float64
	err := b.rounds(func() error {
		return b.withWorkers(ctx, func(ctx context.Context, w *workers) error {
			s, q, d, err := b.cluster(ctx, w)
			started, quiet, downed = append(started, s), append(quiet, q), append(downed, d)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	row := func(values []float64, unit string, goal float64, settings string) Result {
		return atMost(slices.Max(values), unit, goal, fmt.Sprintf("%s, worst of %d", settings, len(values)), "")
	}
	return []Result{
		row(started, "s to all up", maxStart, "3 processes, embedded NATS, from the start of the first"),
		row(quiet, "% of a core", maxProcessor, fmt.Sprintf("3 processes, each idle for %v", b.quietTime())),
		row(downed, "s to downed", maxDowned, fmt.Sprintf("3 processes, from SIGKILL of one until another marks it as down, stable-after %v", nodeStableAfter)),
	}, nil
}

func (b *run) quietTime() time.Duration { return b.short(quietTime, time.Second) }

// cluster runs three processes once. It returns the times to start and to downing in seconds, and
// the largest share of a core that an idle node uses in percent.
func (b *run) cluster(ctx context.Context, w *workers) (started, quiet, downed float64, err error) {
	names := []string{"a", "b", "c"}
	began := time.Now()
	for _, name := range names {
		if _, err = w.start(ctx, name); err != nil {
			return 0, 0, 0, err
		}
	}
	if _, err = eachOwn(w.all, func(i int) order {
		return w.joining(w.all[i], setup{Downing: downing.Settings{StableAfter: nodeStableAfter}}, names...)
	}); err != nil {
		return 0, 0, 0, err
	}
	if _, err = each(w.all, order{Do: orderAwait, Count: len(names)}); err != nil {
		return 0, 0, 0, err
	}
	started = time.Since(began).Seconds()

	before, err := each(w.all, order{Do: orderCPU})
	if err != nil {
		return 0, 0, 0, err
	}
	idle := time.Now()
	if err = pause(ctx, b.quietTime()); err != nil {
		return 0, 0, 0, err
	}
	after, err := each(w.all, order{Do: orderCPU})
	if err != nil {
		return 0, 0, 0, err
	}
	for i := range after {
		quiet = max(quiet, 100*(after[i].Took-before[i].Took).Seconds()/time.Since(idle).Seconds())
	}

	killed := time.Now()
	if err = w.stop(w.all[2], true); err != nil {
		return 0, 0, 0, err
	}
	seen, err := each(w.all, order{Do: orderDown, Name: names[2]})
	if err != nil {
		return 0, 0, 0, err
	}
	first := slices.MinFunc(seen, func(a, b result) int { return a.At.Compare(b.At) })
	return started, quiet, first.At.Sub(killed).Seconds(), nil
}
