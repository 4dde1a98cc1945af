// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/plugins/nats/embedded"
)

const (
	joinNodes = 4 // including the joining node
	joinKeys  = 100_000
	joinSize  = 10 // elements of each set
	// joinPause is the approximate pause of each caller between two updates while a node joins.
	joinPause = 100 * time.Millisecond
	// joinSlack is the time for the node to become Up.
	joinSlack = 5 * time.Second
	// joinWrites is the number of keys that are updated during the join.
	joinWrites = 10_000
	// chunk is the size of a raw message.
	chunk = 256 << 10

	maxJoin, maxJoinRatio, maxJoinP99 = 5, 3, 3
)

// dataJoin measures the join of a new node, and the latency of majority writes during the join.
func dataJoin(ctx context.Context, b *run) ([]Result, error) {
	keys := b.scaled(joinKeys, 1)
	var took, during compared // limits: for took, the time to send and decode the same data; for during, the latency before the join
	err := b.rounds(func() error {
		raw, err := b.rawJoin(ctx, keys)
		if err != nil {
			return err
		}
		return b.withWorkers(ctx, func(ctx context.Context, w *workers) error {
			j, err := b.joinOnce(ctx, w, keys)
			took.limits, took.values = append(took.limits, raw.Seconds()), append(took.values, j.took.Seconds())
			during.limits, during.values = append(during.limits, ms(j.before)), append(during.values, ms(j.during))
			return err
		})
	})
	settings := fmt.Sprintf("%d keys, each an ORSet of %d, on 3 processes; a 4th joins, from Up until it has all data and the digests are equal, embedded NATS, GOMAXPROCS %d each", keys, joinSize, joinProcs())
	return []Result{
		atMost(median(took.values), "s to equal", maxJoin, settings, ""),
		took.result(Result{
			Unit: "s to equal", Goal: maxJoinRatio, Better: lower,
			Settings: "the same; raw: the same bytes, sent with nats.go in messages of 256 KiB and then decoded on one core",
		}),
		during.result(Result{
			Unit: "ms p99", Goal: maxJoinP99, Better: lower,
			Settings: fmt.Sprintf("WriteMajority of GCounters by %d callers, each every %v, from Up of a joining node until it has all data; limit: before the join", dataCallers, joinPause),
		}),
	}, err
}

// joinProcs is the number of processors of each node. Without this limit, the garbage collectors of
// all nodes compete for the same processors.
func joinProcs() int { return max(1, runtime.NumCPU()/joinNodes) }

type joined struct{ took, before, during time.Duration }

// joinOnce lets a node join an idle cluster once, and a cluster under load once.
func (b *run) joinOnce(ctx context.Context, w *workers, keys int) (j joined, err error) {
	w.procs = joinProcs()
	if err = w.joinAll(ctx, setup{Data: true}, "n1", "n2", "n3"); err != nil {
		return j, err
	}
	held := slices.Clone(w.all)
	if _, err = eachOwn(held, func(i int) order {
		from, to := keys*i/len(held), keys*(i+1)/len(held)
		return order{Do: orderFill, Kind: kindSet, Set: "set", From: from, Count: to - from, Size: joinSize}
	}); err != nil {
		return j, err
	}
	digest, err := w.equal(ctx)
	if err != nil {
		return j, err
	}
	one, up, err := w.join(ctx, "quiet", setup{Data: true})
	if err != nil {
		return j, err
	}
	all, err := one.do(order{Do: orderSync, Digest: digest})
	if err != nil {
		return j, err
	}
	j.took = all.At.Sub(up.At)
	check := order{Do: orderCheck, Kind: kindSet, Set: "set", Count: keys, Size: joinSize}
	for _, o := range []order{check, {Do: orderLeave}} {
		if _, err = one.do(o); err != nil {
			return j, err
		}
	}
	if err = w.stop(one, false); err != nil {
		return j, err
	}
	if _, err = each(held, order{Do: orderAwait, Count: len(held)}); err != nil {
		return j, err
	}
	err = b.joinBusy(ctx, w, &j, check)
	return j, err
}

func (b *run) joinBusy(ctx context.Context, w *workers, j *joined, check order) error {
	first := w.all[0]
	counters := order{Kind: kindCounter, Set: "counter", Count: b.scaled(joinWrites, 1)}
	fill, write, sum := counters, counters, counters
	fill.Do, write.Do, sum.Do = orderFill, orderUpdate, orderCheck
	write.Length, write.Pause = b.settings.Length+2*j.took, joinPause
	if _, err := first.do(fill); err != nil {
		return err
	}
	if _, err := w.equal(ctx); err != nil {
		return err
	}
	quiet, err := first.do(write)
	if err != nil {
		return err
	}
	write.Length += b.short(joinSlack, time.Second)
	var one *worker
	var busy, up, all result
	err = inParallel(2, 2, func(i int) (err error) {
		if i == 0 {
			busy, err = first.do(write)
			return err
		}
		if one, up, err = w.join(ctx, "busy", setup{Data: true}); err == nil {
			all, err = one.do(order{Do: orderSync})
		}
		return err
	})
	if err != nil {
		return err
	}
	j.before, j.during = p99(quiet.Samples, time.Time{}, time.Now()), p99(busy.Samples, up.At, all.At)
	if _, err = w.equal(ctx); err != nil {
		return err
	}
	if _, err = one.do(check); err != nil {
		return err
	}
	r, err := one.do(sum)
	if want := uint64(counters.Count + quiet.Ops + busy.Ops); err == nil && r.Sum != want { //nolint:gosec // counts
		err = fmt.Errorf("the counters hold %d, want %d", r.Sum, want)
	}
	return err
}

// p99 returns the 99th percentile of the samples that ended in a period; zero without samples.
func p99(samples []sample, from, to time.Time) time.Duration {
	var within, all []time.Duration
	for _, s := range samples {
		all = append(all, s.Took)
		if s.At.After(from) && s.At.Before(to) {
			within = append(within, s.Took)
		}
	}
	if len(within) == 0 { // none ended in the period: use all samples
		within = all
	}
	return percentile(within, 0.99)
}

// rawJoin returns the time to send the data of all keys with nats.go and to decode it on one core.
func (b *run) rawJoin(ctx context.Context, keys int) (took time.Duration, err error) {
	err = b.withWorkers(ctx, func(ctx context.Context, w *workers) (err error) {
		one, err := w.start(ctx, "decoder")
		if err != nil {
			return err
		}
		r, err := one.do(order{Do: orderDecode, Set: "set", Count: keys, Size: joinSize})
		if err != nil {
			return err
		}
		sent, err := rawTransfer(w.server, r.Bytes)
		b.progress("raw: %v to send %d bytes, %v to decode", sent, r.Bytes, r.Took)
		took = sent + r.Took
		return err
	})
	return took, err
}

func rawTransfer(s *embedded.Server, size int) (time.Duration, error) {
	from, err := dial(s.Access())
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := dial(s.Access())
	if err != nil {
		return 0, err
	}
	defer to.Close()
	left, done := size, make(chan struct{})
	sub, err := to.Subscribe("bytes", func(m *natsgo.Msg) {
		if left -= len(m.Data); left == 0 {
			close(done)
		}
	})
	if err == nil {
		err = errors.Join(sub.SetPendingLimits(-1, -1), to.Flush())
	}
	if err != nil {
		return 0, err
	}
	payload := noteOf(0, chunk)
	began := time.Now()
	for n := size; n > 0; n -= min(n, chunk) {
		if err := from.Publish("bytes", payload[:min(n, chunk)]); err != nil {
			return 0, err
		}
	}
	patience := time.NewTimer(nodePatience)
	defer patience.Stop()
	select {
	case <-done:
		return time.Since(began), nil
	case <-patience.C:
		return 0, errors.New("the transfer is incomplete")
	}
}
