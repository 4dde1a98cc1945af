// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	updateKeys = 10_000
	updateSize = 100 // elements of each set
	// ackSize is the approximate size of an acknowledgement.
	ackSize = 12
)

// dataUpdate measures majority writes of 3 and 5 processes beside raw requests to as many peers
// with the same bytes.
func dataUpdate(ctx context.Context, b *run) ([]Result, error) {
	var results []Result
	sizes := []int{3, 5}
	if b.settings.Scale > 1 {
		sizes = sizes[:1]
	}
	for _, nodes := range sizes {
		more, err := b.updates(ctx, nodes)
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
	}
	return results, nil
}

func (b *run) updates(ctx context.Context, nodes int) (results []Result, err error) {
	c, err := b.newCrew() //nolint:contextcheck // the server lives until close
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err = c.joinAll(ctx, nodes); err != nil {
		return nil, err
	}
	if _, err = each(c.hands[1:], dataOrder{Do: orderAnswer}); err != nil {
		return nil, err
	}
	for _, o := range []dataOrder{
		{Kind: kindCounter, Set: "counter", Count: b.scaled(updateKeys)},
		{Kind: kindSet, Set: "set", Count: b.scaled(updateKeys), Size: updateSize},
		{Kind: kindCounter, Set: "hot", Count: 1},
	} {
		r, err := b.updatesOf(ctx, c, o)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// updatesOf measures updates of a set of keys.
func (b *run) updatesOf(ctx context.Context, c *crew, o dataOrder) (Result, error) {
	first, peers := c.hands[0], len(c.hands)/2
	o.Do = orderFill
	if _, err := first.order(o); err != nil {
		return Result{}, err
	}
	if _, err := c.equal(ctx); err != nil {
		return Result{}, err
	}
	o.Do, o.Callers = orderUpdate, 1
	size, warm, err := updateBytes(first, o)
	if err != nil {
		return Result{}, err
	}
	o.Callers, o.Length = 0, b.settings.Length
	sum := uint64(o.Count + warm) //nolint:gosec // counts
	var took []time.Duration
	raw := func(way string) (float64, error) {
		a, failed := first.order(dataOrder{Do: orderRaw, Way: way, Count: peers, Size: size, Answer: ackSize, Length: b.settings.Length})
		return float64(a.Ops) / max(1e-9, a.Took.Seconds()), failed
	}
	var transports []float64
	limits, values, err := b.alternate(
		func() (float64, error) {
			rate, failed := raw(wayTransport)
			if failed != nil {
				return 0, failed
			}
			transports = append(transports, rate)
			return raw(wayBare)
		},
		func() (float64, error) {
			a, failed := first.order(o)
			sum += uint64(a.Ops) //nolint:gosec // a count
			for _, s := range a.Samples {
				took = append(took, s.Took)
			}
			return float64(a.Ops) / max(1e-9, a.Took.Seconds()), failed
		})
	if err != nil {
		return Result{}, err
	}
	if _, err = c.equal(ctx); err != nil {
		return Result{}, err
	}
	o.Do = orderCheck
	answers, err := each(c.hands, o)
	if err != nil {
		return Result{}, err
	}
	for _, a := range answers {
		if o.Kind == kindCounter && a.Sum != sum {
			return Result{}, fmt.Errorf("the counters hold %d, but %d were added", a.Sum, sum)
		}
	}
	subject := fmt.Sprintf("%d keys, each a %s", o.Count, o.Kind)
	switch {
	case o.Kind == kindSet:
		subject += fmt.Sprintf(" of %d", o.Size)
	case o.Count == 1 && o.Set == "hot":
		subject = "1 hot key, a " + o.Kind
	}
	limit, value := median(limits), median(values)
	r := Result{
		Value: value, Unit: "updates/s", Limit: limit, Ratio: value / limit, Goal: 0.5, Better: higher,
		Settings: fmt.Sprintf("WriteMajority on %d processes, %d callers on one, %s; raw: requests of nats.go, %d bytes to %d of the others, all awaited", len(c.hands), dataCallers, subject, size, peers),
		Detail: fmt.Sprintf("p50 %v, p99 %v; the same requests over Refold's transport: %.0f/s, ratio %.2f",
			percentile(took, 0.5).Round(time.Microsecond), percentile(took, 0.99).Round(time.Microsecond), median(transports), value/median(transports)),
	}
	if o.Set == "hot" {
		return r, nil // it is printed without a verdict
	}
	return r.judge(), nil
}

// updateBytes returns the number of bytes that an update sends to each peer it waits for, and the
// number of updates behind that figure.
func updateBytes(h *hand, o dataOrder) (size, ops int, err error) {
	before, err := h.order(dataOrder{Do: orderStats})
	if err != nil {
		return 0, 0, err
	}
	a, err := h.order(o)
	if err != nil {
		return 0, 0, err
	}
	after, err := h.order(dataOrder{Do: orderStats})
	if err != nil {
		return 0, 0, err
	}
	const k = "delta"
	bytes, messages := after.Count.SentBytes[k]-before.Count.SentBytes[k], after.Count.Sent[k]-before.Count.Sent[k]
	if messages == 0 {
		return 0, 0, errors.New("no update was sent")
	}
	return int(bytes / messages), a.Ops, nil //nolint:gosec // sizes
}
