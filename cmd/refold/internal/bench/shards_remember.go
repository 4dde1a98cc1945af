// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const maxRecall = 1.5

// recalled is the time until all entities ran.
type recalled struct{ first, messages, remembered time.Duration }

// shardRecall measures the time until remembered entities run again after a restart of all nodes,
// beside starting the same number by one message each.
func shardRecall(ctx context.Context, b *run) ([]Result, error) {
	var results []Result
	for _, replicated := range []bool{false, true} {
		if !replicated && b.settings.Scale > 1 {
			continue // each run takes minutes
		}
		store := "in the journal"
		if replicated {
			store = "in replicated data"
		}
		var limits, values []float64
		var first time.Duration
		for i := range max(1, b.settings.Runs) {
			b.progress("%s, run %d of %d", store, i+1, max(1, b.settings.Runs))
			r, err := b.recall(ctx, replicated)
			if err != nil {
				return results, fmt.Errorf("remembered %s: %w", store, err)
			}
			first = r.first
			limits, values = append(limits, r.messages.Seconds()), append(values, r.remembered.Seconds())
		}
		limit, value := median(limits), median(values)
		results = append(results, Result{
			Value: value, Unit: "s to all run", Limit: limit, Ratio: value / limit, Goal: maxRecall, Better: lower,
			Settings: fmt.Sprintf("%d entities in %d shards on 3 processes that were all stopped, remembered %s, from Up of the third; limit: the same entities, not remembered, by %d callers on each",
				b.moveEntities(), b.moveShards(), store, dataCallers),
			Detail: fmt.Sprintf("to start them and to store that they run took %v before", round(first)),
		}.judge())
	}
	return results, nil
}

// recall restarts the entities of one cluster in another.
func (b *run) recall(ctx context.Context, replicated bool) (r recalled, err error) {
	dir, err := (&run{}).folder()
	if err != nil {
		return r, err
	}
	setup := b.shardSetup(3)
	setup.Replicated, setup.Remember = replicated, dir
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), setup.Schema), os.RemoveAll(dir)) }()
	b.progress("%d entities begin to run", b.moveEntities())
	wake := func(c shardCrew, _ time.Time) (time.Duration, error) {
		answers, failed := b.parts(c.hands, shardOrder{Do: shardFill})
		var took time.Duration
		for _, a := range answers {
			took = max(took, a.Took)
		}
		return took, failed
	}
	if r.first, err = b.era(ctx, setup, wake); err != nil {
		return r, err
	}
	b.progress("%d entities run again", b.moveEntities())
	if r.remembered, err = b.era(ctx, setup, func(c shardCrew, up time.Time) (time.Duration, error) { return b.allRun(ctx, c, up) }); err != nil {
		return r, err
	}
	b.progress("%d entities are sent a message", b.moveEntities())
	setup.Remember = ""
	r.messages, err = b.era(ctx, setup, func(c shardCrew, up time.Time) (time.Duration, error) {
		if _, failed := wake(c, up); failed != nil {
			return 0, failed
		}
		return b.allRun(ctx, c, up)
	})
	return r, err
}

// era is the work of a cluster from Up of its last node until all are stopped.
func (b *run) era(ctx context.Context, setup shardSetup, f func(c shardCrew, up time.Time) (time.Duration, error)) (took time.Duration, err error) {
	c, err := newShardCrew(b.settings.ShardNode) //nolint:contextcheck // the server lives until close
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var up time.Time
	for _, name := range []string{"n1", "n2", "n3"} {
		own := setup
		if own.Remember != "" {
			own.Remember = filepath.Join(setup.Remember, name)
		}
		if up, err = c.join(ctx, name, own); err != nil {
			return 0, err
		}
	}
	if took, err = f(c, up); err != nil {
		return 0, err
	}
	if _, err = c.hands[0].shard(shardOrder{Do: shardPrepare}); err != nil {
		return 0, err
	}
	_, err = shardEach(c.hands, func(int) shardOrder { return shardOrder{Do: shardLeave} })
	return took, err
}

// allRun waits until all entities run, and returns the time since a start time.
func (b *run) allRun(ctx context.Context, c shardCrew, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	for {
		answers, err := shardEach(c.hands, func(int) shardOrder { return shardOrder{Do: shardRuns} })
		if err != nil {
			return 0, err
		}
		n := 0
		for _, a := range answers {
			n += a.Ops
		}
		if n == b.moveEntities() {
			return time.Since(since), nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%d of %d entities run: %w", n, b.moveEntities(), err)
		}
	}
}
