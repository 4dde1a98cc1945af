// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

const (
	visibleNodes = 10
	visibleKeys  = 100
	visiblePause = 50 * time.Millisecond // between two updates, approximately
	visibleMore  = 5                     // multiple of the length of a round
	idleKeys     = 100_000

	maxVisible50, maxVisible99 = 250, 500 // ms
	maxIdle                    = 10_000   // bytes a second
)

// dataVisible measures the time until a write of one node is visible on all others.
func dataVisible(ctx context.Context, b *run) (results []Result, err error) {
	server, err := embedded.Start(embedded.Config{}) //nolint:contextcheck // the server lives until Close
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	nodes := visibleNodes
	if b.settings.Scale > 1 {
		nodes = 3
	}
	b.progress("%d nodes join", nodes)
	g, err := newGroup(ctx, nodes, func(self identity.Node) (transport.Carrier, error) { //nolint:contextcheck // it ends with its node
		return nats.Connect(nats.Config{Access: server.Access(), Cluster: "bench", Self: self})
	})
	if err != nil {
		return nil, err
	}
	defer g.close()
	keys := dataKeys[crdt.GCounter]("counter", visibleKeys)
	rng := randoms(1)[0]
	counted := make([]uint64, len(keys))
	var took []time.Duration
	var seen []watched
	end := time.Now().Add(visibleMore * b.settings.Length)
	next := time.Now()
	for len(seen) > 0 || len(took) == 0 || time.Now().Before(end) {
		if now := time.Now(); !now.Before(next) && (now.Before(end) || len(took) == 0) {
			k := rng.IntN(len(keys))
			from := k % len(g) // each key has one writer, so a number identifies one update
			if err = countOnce(ctx, g[from], keys[k]); err != nil {
				return nil, err
			}
			counted[k]++
			for i := range g {
				if i != from {
					seen = append(seen, watched{i, k, counted[k], now})
				}
			}
			next = now.Add(visiblePause/2 + time.Duration(rng.Int64N(int64(visiblePause))))
		}
		if seen, took, err = look(ctx, g, keys, seen, took); err != nil {
			return nil, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
	settings := fmt.Sprintf("WriteLocal of GCounters on any of %d nodes, one about each %v, until one of the others sees it, embedded NATS, one process", len(g), visiblePause)
	row := func(q, goal float64) Result {
		ms := percentile(took, q).Seconds() * 1e3
		return Result{
			Value: ms, Unit: fmt.Sprintf("ms p%.0f", 100*q), Ratio: ms, Goal: goal, Better: lower, Settings: settings,
			Detail: fmt.Sprintf("%d sights", len(took)),
		}.judge()
	}
	return []Result{row(0.5, maxVisible50), row(0.99, maxVisible99)}, g.equal(ctx)
}

// watched is an update that a node has not received yet.
type watched struct {
	node, key int
	count     uint64
	at        time.Time
}

// look checks which updates are visible.
func look(ctx context.Context, g group, keys []ddata.Key[crdt.GCounter], seen []watched, took []time.Duration) ([]watched, []time.Duration, error) {
	left := seen[:0]
	for _, w := range seen {
		c, err := ddata.Get(ctx, g[w.node], keys[w.key], ddata.ReadLocal())
		switch {
		case err != nil && !errors.Is(err, ddata.ErrNotFound):
			return nil, nil, err
		case err == nil && c.Value() >= w.count:
			took = append(took, time.Since(w.at))
		case time.Since(w.at) > nodePatience:
			return nil, nil, fmt.Errorf("%s is not visible on node %d", keys[w.key], w.node)
		default:
			left = append(left, w)
		}
	}
	return left, took, nil
}

// dataIdle measures the traffic between nodes with equal data.
func dataIdle(ctx context.Context, b *run) ([]Result, error) {
	carrier := inMemory()
	g, err := newGroup(ctx, 1, carrier)
	if err != nil {
		return nil, err
	}
	defer func() { g.close() }()
	n := b.scaled(idleKeys)
	if err = fillCounters(ctx, g[0], dataKeys[crdt.GCounter]("counter", n)); err != nil {
		return nil, err
	}
	for range 2 {
		if g, err = g.start(ctx, carrier); err != nil {
			return nil, err
		}
	}
	if err = errors.Join(g.up(ctx), g.see(ctx), g.equal(ctx)); err != nil {
		return nil, err
	}
	if err = pause(ctx, b.quietTime()/4); err != nil { // pending messages are sent first
		return nil, err
	}
	before, err := g.sent(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err = pause(ctx, b.quietTime()); err != nil {
		return nil, err
	}
	after, err := g.sent(ctx)
	if err != nil {
		return nil, err
	}
	value := float64(after-before) / time.Since(began).Seconds() / float64(len(g))
	return []Result{Result{
		Value: value, Unit: "bytes/s/node", Ratio: value, Goal: maxIdle, Better: lower,
		Settings: fmt.Sprintf("%d equal keys on %d nodes, nothing happens for %v", n, len(g), b.quietTime()),
	}.judge()}, nil
}

// sent returns the number of bytes that all nodes have sent.
func (g group) sent(ctx context.Context) (n uint64, err error) {
	for _, r := range g {
		s, err := r.Stats(ctx)
		if err != nil {
			return 0, err
		}
		for _, bytes := range s.Protocol.SentBytes {
			n += bytes
		}
	}
	return n, nil
}
