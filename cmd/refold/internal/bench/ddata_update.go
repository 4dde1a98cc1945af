// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	updateKeys = 10_000
	updateSize = 100 // elements of each set
	// ackSize is the approximate size of an acknowledgement.
	ackSize = 12
)

// dataUpdate measures majority writes. The limit is raw requests of the same size to the same
// number of peers.
func dataUpdate(ctx context.Context, b *run) (results []Result, err error) {
	sizes := [][]string{{"n1", "n2", "n3"}, {"n1", "n2", "n3", "n4", "n5"}}
	if b.trial() {
		sizes = sizes[:1]
	}
	for _, names := range sizes {
		err = b.withWorkers(ctx, func(ctx context.Context, w *workers) (err error) {
			if err = w.joinAll(ctx, setup{Data: true}, names...); err != nil {
				return err
			}
			if _, err = each(w.all[1:], order{Do: orderAnswer}); err != nil {
				return err
			}
			for _, o := range []order{
				{Kind: kindCounter, Set: "counter", Count: b.scaled(updateKeys, 1)},
				{Kind: kindSet, Set: "set", Count: b.scaled(updateKeys, 1), Size: updateSize},
				{Kind: kindCounter, Set: "hot", Count: 1},
			} {
				r, err := b.updatesOf(ctx, w, o)
				if err != nil {
					return err
				}
				results = append(results, r)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (b *run) updatesOf(ctx context.Context, w *workers, o order) (r Result, err error) {
	first, peers := w.all[0], len(w.all)/2
	o.Do = orderFill
	if _, err = first.do(o); err != nil {
		return r, err
	}
	if _, err = w.equal(ctx); err != nil {
		return r, err
	}
	// A first update shows how many bytes each peer receives.
	o.Do, o.Callers = orderUpdate, 1
	var warm [3]result
	for i, o := range []order{{Do: orderStats}, o, {Do: orderStats}} {
		if warm[i], err = first.do(o); err != nil {
			return r, err
		}
	}
	size, err := deltaSize(warm[0].Stats, warm[2].Stats)
	if err != nil {
		return r, err
	}
	o.Callers, o.Length = 0, b.settings.Length
	sum := uint64(o.Count + warm[1].Ops) //nolint:gosec // counts
	raw := func(way string) (_ float64, err error) {
		r, err := first.do(order{Do: orderRaw, Way: way, Count: peers, Size: size, Reply: ackSize, Length: b.settings.Length})
		return r.rate(), err
	}
	var took []time.Duration
	var transports []float64
	c, err := b.compare(
		func() (_ float64, err error) {
			rate, err := raw(wayTransport)
			if err != nil {
				return 0, err
			}
			transports = append(transports, rate)
			return raw(wayBare)
		},
		func() (_ float64, err error) {
			r, err := first.do(o)
			sum += uint64(r.Ops) //nolint:gosec // a count
			for _, s := range r.Samples {
				took = append(took, s.Took)
			}
			return r.rate(), err
		})
	if err != nil {
		return r, err
	}
	if _, err = w.equal(ctx); err != nil {
		return r, err
	}
	o.Do = orderCheck
	checks, err := each(w.all, o)
	if err != nil {
		return r, err
	}
	for _, r := range checks {
		if o.Kind == kindCounter && r.Sum != sum {
			return Result{}, fmt.Errorf("the counters hold %d, but %d were added", r.Sum, sum)
		}
	}
	subject := fmt.Sprintf("%d keys, each a %s", o.Count, o.Kind)
	if o.Kind == kindSet {
		subject += fmt.Sprintf(" of %d", o.Size)
	} else if o.Set == "hot" {
		subject = "1 hot key, a " + o.Kind
	}
	r = c.result(Result{
		Unit: "updates/s", Goal: 0.5, Better: higher,
		Settings: fmt.Sprintf("WriteMajority on %d processes, %d callers on one, %s; raw: requests of nats.go, %d bytes to %d of the others, all awaited", len(w.all), dataCallers, subject, size, peers),
		Detail: fmt.Sprintf("p50 %v, p99 %v; the same requests over Refold's transport: %.0f/s, ratio %.2f",
			percentile(took, 0.5).Round(time.Microsecond), percentile(took, 0.99).Round(time.Microsecond), median(transports), median(c.values)/median(transports)),
	})
	if o.Set == "hot" {
		r.Met = nil // this row has no verdict
	}
	return r, nil
}
