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

	"github.com/refold-io/refold/journal"
)

const (
	maxRecall = 1.5
	// recallEvents is the number of events of each entity.
	recallEvents = 10
)

type recalled struct{ first, messages, remembered time.Duration }

// shardRecall measures the time until remembered entities run again after a restart of all nodes.
// The limit is the time to start the same number of entities by one message each.
func shardRecall(ctx context.Context, b *run) ([]Result, error) {
	var results []Result
	for _, replicated := range []bool{false, true} {
		if !replicated && b.trial() {
			continue // skipped, because each run takes minutes
		}
		store := "in the journal"
		if replicated {
			store = "in replicated data"
		}
		var c compared
		var first time.Duration
		if err := b.runs(store+", ", func() error {
			r, err := b.recall(ctx, replicated)
			first = r.first
			c.limits, c.values = append(c.limits, r.messages.Seconds()), append(c.values, r.remembered.Seconds())
			return err
		}); err != nil {
			return results, fmt.Errorf("remembered %s: %w", store, err)
		}
		results = append(results, c.result(Result{
			Unit: "s to all run", Goal: maxRecall, Better: lower,
			Settings: fmt.Sprintf("%d entities of %d events in %d shards on 3 processes that were all stopped, remembered %s, from Up of the third; limit: the same entities, not remembered, by %d callers on each",
				b.moveEntities(), recallEvents, b.moveShards(), store, dataCallers),
			Detail: fmt.Sprintf("their first start, which stores that they run, took %v", round(first)),
		}))
	}
	return results, nil
}

// recall starts entities in a first cluster. It then measures the start of the same entities in two
// later clusters: first as remembered entities, then by messages.
func (b *run) recall(ctx context.Context, replicated bool) (r recalled, err error) {
	dir, err := (&run{}).folder()
	if err != nil {
		return r, err
	}
	s := b.shardSetup(3)
	s.Replicated, s.Remember = replicated, dir
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), s.Schema), os.RemoveAll(dir)) }()
	if err = b.fillTallies(ctx, s.Schema); err != nil {
		return r, err
	}
	b.progress("starting %d entities", b.moveEntities())
	wake := func(w *workers, _ time.Time) (took time.Duration, err error) {
		results, err := b.parts(w.all, order{Do: orderWake})
		for _, r := range results {
			took = max(took, r.Took)
		}
		return took, err
	}
	if r.first, err = b.lifetime(ctx, s, wake); err != nil {
		return r, err
	}
	b.progress("starting %d remembered entities", b.moveEntities())
	if r.remembered, err = b.lifetime(ctx, s, func(w *workers, up time.Time) (time.Duration, error) { return b.allRun(ctx, w, up) }); err != nil {
		return r, err
	}
	b.progress("sending a message to %d entities", b.moveEntities())
	s.Remember = ""
	r.messages, err = b.lifetime(ctx, s, func(w *workers, up time.Time) (time.Duration, error) {
		if _, err = wake(w, up); err != nil {
			return 0, err
		}
		return b.allRun(ctx, w, up)
	})
	return r, err
}

// lifetime starts a cluster, calls f with the time when its last node was Up, and stops all nodes.
func (b *run) lifetime(ctx context.Context, common setup, f func(w *workers, up time.Time) (time.Duration, error)) (took time.Duration, err error) {
	err = b.withWorkers(ctx, func(ctx context.Context, w *workers) error {
		var up result
		for _, name := range []string{"n1", "n2", "n3"} {
			own := common
			if own.Remember != "" {
				own.Remember = filepath.Join(common.Remember, name)
			}
			if _, up, err = w.join(ctx, name, own); err != nil {
				return err
			}
		}
		if took, err = f(w, up.At); err != nil {
			return err
		}
		if _, err = w.all[0].do(order{Do: orderPrepare}); err != nil {
			return err
		}
		_, err = each(w.all, order{Do: orderLeave})
		return err
	})
	return took, err
}

func (b *run) allRun(ctx context.Context, w *workers, since time.Time) (time.Duration, error) {
	n := 0
	err := until(ctx, 50*time.Millisecond, func(context.Context) (bool, error) {
		results, err := each(w.all, order{Do: orderRuns})
		n = 0
		for _, r := range results {
			n += r.Ops
		}
		return n == b.moveEntities(), err
	})
	if err != nil {
		return 0, fmt.Errorf("%d of %d entities run: %w", n, b.moveEntities(), err)
	}
	return time.Since(since), nil
}

// fillTallies stores the events of the sharded counters.
func (b *run) fillTallies(ctx context.Context, schema string) error {
	d, err := b.openSchema(ctx, schema)
	if err != nil {
		return err
	}
	ids := make([]string, b.moveEntities())
	for i := range ids {
		ids[i] = journal.JoinID("tally", tallyID(i))
	}
	return errors.Join(b.fillPostgres(ctx, d, recallEvents, ids...), d.close())
}
