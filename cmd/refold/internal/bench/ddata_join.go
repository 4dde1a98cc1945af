// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// dataJoin measures the time until a new node holds all data of three others, and the latency of
// majority writes during the join.
func dataJoin(ctx context.Context, b *run) (results []Result, err error) {
	keys := b.scaled(joinKeys)
	var took, limit, before, during []float64
	for i := range max(1, b.settings.Rounds) {
		b.progress("round %d of %d", i+1, b.settings.Rounds)
		j, err := b.joinOnce(ctx, keys)
		if err != nil {
			return nil, err
		}
		took, limit = append(took, j.took.Seconds()), append(limit, j.raw.Seconds())
		before, during = append(before, j.before.Seconds()*1e3), append(during, j.during.Seconds()*1e3)
	}
	settings := fmt.Sprintf("%d keys, each an ORSet of %d, on 3 processes; a 4th joins, from Up until all is there and the digests are equal, embedded NATS, GOMAXPROCS %d each", keys, joinSize, joinProcs())
	t, l, p, q := median(took), median(limit), median(before), median(during)
	return []Result{
		atMost(t, "s to equal", maxJoin, settings, ""),
		Result{
			Value: t, Unit: "s to equal", Limit: l, Ratio: t / l, Goal: maxJoinRatio, Better: lower,
			Settings: "the same; raw: the bytes through nats.go in messages of 256 KiB, then decoding them on one core",
		}.judge(),
		Result{
			Value: q, Unit: "ms p99", Limit: p, Ratio: q / p, Goal: maxJoinP99, Better: lower,
			Settings: fmt.Sprintf("WriteMajority of GCounters by %d callers, each every %v, from Up of a joining node until it has all; limit: before", dataCallers, joinPause),
		}.judge(),
	}, nil
}

// joinProcs is the number of processors of each node. Without this limit, the garbage collectors of
// all nodes, each of which uses idle processors, slow each other down.
func joinProcs() int { return max(1, runtime.NumCPU()/joinNodes) }

// joined is the result of a join.
type joined struct{ took, raw, before, during time.Duration }

// joinOnce lets a node join an idle cluster once, and a cluster under load once.
func (b *run) joinOnce(ctx context.Context, keys int) (j joined, err error) {
	if j.raw, err = b.rawJoin(ctx, keys); err != nil {
		return j, err
	}
	c, err := b.newCrew() //nolint:contextcheck // the server lives until close
	if err != nil {
		return j, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	c.procs = joinProcs()
	if err = c.joinAll(ctx, joinNodes-1); err != nil {
		return j, err
	}
	held := append([]*hand(nil), c.hands...)
	if _, err = eachOwn(held, func(i int) dataOrder {
		from, to := keys*i/len(held), keys*(i+1)/len(held)
		return dataOrder{Do: orderFill, Kind: kindSet, Set: "set", From: from, Count: to - from, Size: joinSize}
	}); err != nil {
		return j, err
	}
	digest, err := c.equal(ctx)
	if err != nil {
		return j, err
	}
	h, up, err := c.join(ctx, "quiet")
	if err != nil {
		return j, err
	}
	all, err := h.order(dataOrder{Do: orderSync, Digest: digest})
	if err != nil {
		return j, err
	}
	j.took = all.At.Sub(up.At)
	check := dataOrder{Do: orderCheck, Kind: kindSet, Set: "set", Count: keys, Size: joinSize}
	a, err := h.order(check)
	if err != nil {
		return j, err
	}
	if a.Ops != keys {
		return j, fmt.Errorf("%d keys were read back, want %d", a.Ops, keys)
	}
	if _, err = h.order(dataOrder{Do: orderLeave}); err != nil {
		return j, err
	}
	if err = c.dismiss(h); err != nil {
		return j, err
	}
	if _, err = each(held, dataOrder{Do: orderAwait, Count: len(held)}); err != nil {
		return j, err
	}
	return j, b.joinBusy(ctx, c, &j, check)
}

// joinBusy lets a node join while other nodes write.
func (b *run) joinBusy(ctx context.Context, c *crew, j *joined, check dataOrder) error {
	first := c.hands[0]
	length := b.settings.Length + 2*j.took
	counters := dataOrder{Kind: kindCounter, Set: "counter", Count: b.scaled(joinWrites)}
	fill, write := counters, counters
	fill.Do, write.Do, write.Length, write.Pause = orderFill, orderUpdate, length, joinPause
	if _, err := first.order(fill); err != nil {
		return err
	}
	if _, err := c.equal(ctx); err != nil {
		return err
	}
	quiet, err := first.order(write)
	if err != nil {
		return err
	}
	write.Length += max(time.Second, joinSlack/time.Duration(max(1, b.settings.Scale)))
	type outcome struct {
		dataAnswer
		error
	}
	written := make(chan outcome, 1)
	go func() {
		a, failed := first.order(write)
		written <- outcome{a, failed}
	}()
	h, up, err := c.join(ctx, "busy")
	var all dataAnswer
	if err == nil {
		all, err = h.order(dataOrder{Do: orderSynced})
	}
	busy := <-written
	if err = errors.Join(err, busy.error); err != nil {
		return err
	}
	j.before, j.during = p99(quiet.Samples, time.Time{}, time.Now()), p99(busy.Samples, up.At, all.At)
	if _, err = c.equal(ctx); err != nil {
		return err
	}
	if _, err = h.order(check); err != nil {
		return err
	}
	check = counters
	check.Do = orderCheck
	a, err := h.order(check)
	if want := uint64(counters.Count + quiet.Ops + busy.Ops); err == nil && a.Sum != want { //nolint:gosec // counts
		err = fmt.Errorf("the counters hold %d, want %d", a.Sum, want)
	}
	return err
}

// p99 returns the 99th percentile of the samples that ended within a time; zero without samples.
func p99(samples []dataSample, from, to time.Time) time.Duration {
	var within, all []time.Duration
	for _, s := range samples {
		all = append(all, s.Took)
		if s.At.After(from) && s.At.Before(to) {
			within = append(within, s.Took)
		}
	}
	if len(within) == 0 {
		within = all
	}
	return percentile(within, 0.99)
}

// rawJoin returns the time to send the same number of bytes and to decode them on one core.
func (b *run) rawJoin(ctx context.Context, keys int) (time.Duration, error) {
	c, err := b.newCrew() //nolint:contextcheck // the server lives until close
	if err != nil {
		return 0, err
	}
	h, err := c.start(ctx, "decoder")
	var a dataAnswer
	var sent time.Duration
	if err == nil {
		a, err = h.order(dataOrder{Do: orderDecode, Set: "set", Count: keys, Size: joinSize})
	}
	if err == nil {
		sent, err = rawTransfer(c.server, a.Bytes)
	}
	b.progress("raw: %v to send %d bytes, %v to decode", sent, a.Bytes, a.Took)
	return sent + a.Took, errors.Join(err, c.close())
}

// rawTransfer returns the time that the NATS client takes to send these bytes.
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
	payload := newNotes().bytes(0, chunk)
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
