// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

const (
	localSize  = 1_000  // elements of the updated set
	wireSize   = 10_000 // elements of the set whose delta is measured
	memoryKeys = 100_000

	visibleNodes = 10
	visibleKeys  = 100
	visiblePause = 50 * time.Millisecond // between two updates, approximately
	visibleMore  = 5                     // multiple of the length of a round
	idleKeys     = 100_000

	maxCounterNs, maxSetNs, maxReadNs = 2_000, 20_000, 1_000
	maxDeltaBytes, maxEntryBytes      = 300, 600
	maxVisible50, maxVisible99        = 250, 500 // ms
	maxIdle                           = 10_000   // bytes a second
)

type group []*ddata.Replicator

func (g group) close() {
	for _, r := range g {
		r.Node().Stop()
	}
	for _, r := range g {
		<-r.Node().Done()
	}
}

type carriers func(self identity.Node) (transport.Carrier, error)

// withGroup calls f with n replicators, each of which has all others as replicas.
func withGroup(ctx context.Context, n int, carrier carriers, f func(g *group) error) error {
	var g group
	defer func() { g.close() }()
	if err := g.grow(ctx, carrier, 1); err != nil { // the nodes that start later join this one
		return err
	}
	if err := g.grow(ctx, carrier, n-1); err != nil {
		return err
	}
	return f(&g)
}

// grow starts n replicators whose nodes join the others, and waits until all are replicas.
func (g *group) grow(ctx context.Context, carrier carriers, n int) error {
	for range n {
		if err := g.start(ctx, carrier); err != nil {
			return err
		}
	}
	return until(ctx, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		for _, r := range *g {
			if err := r.Node().AwaitUp(ctx); err != nil || r.ReplicaCount() != len(*g) {
				return false, err
			}
		}
		return true, nil
	})
}

func (g *group) start(ctx context.Context, carrier carriers) error {
	self, err := identity.New(fmt.Sprintf("n%d", len(*g)+1))
	if err != nil {
		return err
	}
	on, err := carrier(self)
	if err != nil {
		return err
	}
	node, err := cluster.Start(cluster.Config{Cluster: "bench", Carrier: on, Seeds: []string{"n1"}}) //nolint:contextcheck // it ends with close
	if err != nil {
		return err
	}
	r, err := ddata.Start(ctx, node, ddata.Config{})
	if err != nil {
		node.Stop()
		<-node.Done()
		return err
	}
	*g = append(*g, r)
	return nil
}

func (g group) equal(ctx context.Context) error {
	return until(ctx, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		digest := ""
		for i, r := range g {
			s, err := r.Stats(ctx)
			if err != nil || i > 0 && s.Digest != digest {
				return false, err
			}
			digest = s.Digest
		}
		return true, nil
	})
}

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

func inMemory() carriers {
	network := inmem.NewNetwork(inmem.NetworkConfig{})
	return func(self identity.Node) (transport.Carrier, error) { return network.Carrier(self), nil }
}

// withNATS calls f with carriers of one NATS server in this process.
func withNATS(f func(carriers) error) error {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		return err
	}
	return errors.Join(f(func(self identity.Node) (transport.Carrier, error) {
		return nats.Connect(nats.Config{Access: server.Access(), Cluster: "bench", Self: self})
	}), server.Close())
}

func fillCounters(ctx context.Context, r *ddata.Replicator, keys []string) error {
	for _, key := range keys {
		if err := increment(ctx, r, key, ddata.WriteLocal()); err != nil {
			return err
		}
	}
	return nil
}

// dataLocal measures local updates and reads on one of three nodes.
func dataLocal(ctx context.Context, b *run) (results []Result, err error) {
	err = withGroup(ctx, 3, inMemory(), func(g *group) (err error) {
		r := (*g)[0]
		elements := setElements(0, localSize)
		err = errors.Join(increment(ctx, r, "counter", ddata.WriteLocal()), addElements(ctx, r, "set", ddata.WriteLocal(), elements...))
		if err != nil {
			return err
		}
		counted := uint64(1)
		for _, o := range []struct {
			subject string
			goal    float64
			f       func(i int) error
		}{
			{"one more on a GCounter, WriteLocal", maxCounterNs, func(int) error { counted++; return increment(ctx, r, "counter", ddata.WriteLocal()) }},
			{fmt.Sprintf("one element of an ORSet of %d added, WriteLocal", localSize), maxSetNs, func(i int) error {
				return addElements(ctx, r, "set", ddata.WriteLocal(), elements[i%localSize])
			}},
			{"read of a GCounter, ReadLocal", maxReadNs, func(int) error {
				c, err := ddata.Get(ctx, r, ddata.Key[crdt.GCounter]("counter"), ddata.ReadLocal())
				if err == nil && c.Value() != counted {
					err = fmt.Errorf("the counter holds %d, want %d", c.Value(), counted)
				}
				return err
			}},
		} {
			var ns []float64
			if err := b.rounds(func() error {
				t, err := together(1, b.settings.Length, func(_, n int) error { return o.f(n) })
				ns = append(ns, float64(t.elapsed.Nanoseconds())/float64(t.ops))
				return err
			}); err != nil {
				return err
			}
			results = append(results, atMost(median(ns), "ns", o.goal, o.subject+", one caller, 3 nodes", ""))
		}
		return g.equal(ctx)
	})
	return results, err
}

// dataWire measures the bytes that are sent for one additional element.
func dataWire(ctx context.Context, b *run) (results []Result, err error) {
	n := b.scaled(wireSize, 1)
	err = withGroup(ctx, 2, inMemory(), func(g *group) (err error) {
		from, to := (*g)[0], (*g)[1]
		err = errors.Join(addElements(ctx, from, "set", ddata.WriteAll(), setElements(0, n)...), g.equal(ctx))
		if err != nil {
			return err
		}
		var sent []float64
		if err = b.rounds(func() (err error) {
			before, err := (*g)[:1].sent(ctx)
			if err != nil {
				return err
			}
			if err = addElements(ctx, from, "set", ddata.WriteAll(), fmt.Sprint("one more ", len(sent))); err != nil {
				return err
			}
			after, err := (*g)[:1].sent(ctx)
			sent = append(sent, float64(after-before))
			return err
		}); err != nil {
			return err
		}
		whole, err := ddata.Get(ctx, to, ddata.Key[crdt.ORSet[string]]("set"), ddata.ReadLocal())
		if err != nil {
			return err
		}
		if whole.Len() != n+len(sent) || !whole.Contains("one more 0") {
			return fmt.Errorf("the other node has %d elements, want %d", whole.Len(), n+len(sent))
		}
		encoded, err := whole.AppendBinary(nil)
		results = []Result{atMost(median(sent), "bytes", maxDeltaBytes,
			fmt.Sprintf("all messages to the other node for one more element of an ORSet of %d, median of %d; may include a comparison", n, len(sent)),
			fmt.Sprintf("the whole set has %d bytes", len(encoded)))}
		return err
	})
	return results, err
}

// dataMemory measures the memory of an entry beyond its value.
func dataMemory(ctx context.Context, b *run) (results []Result, err error) {
	n := b.scaled(memoryKeys, 1)
	err = withGroup(ctx, 1, inMemory(), func(g *group) (err error) {
		keys := dataKeys("counter", n)
		by, err := newSelf("other")
		if err != nil {
			return err
		}
		before := heap()
		values := make([]crdt.GCounter, n) // the memory of the values alone
		for i := range values {
			values[i] = crdt.GCounter{}.Add(by, 1).ResetDelta()
		}
		alone := heap() - before - uint64(n)*8 //nolint:gosec // a count
		runtime.KeepAlive(values)
		before = heap()
		if err = errors.Join(fillCounters(ctx, (*g)[0], keys), g.equal(ctx)); err != nil {
			return err
		}
		used := heap() - before
		runtime.KeepAlive(keys)
		results = []Result{atMost((float64(used)-float64(alone))/float64(n), "bytes/entry", maxEntryBytes,
			fmt.Sprintf("%d entries, each a GCounter of one node, beyond the value", n), fmt.Sprintf("a value takes %.0f", float64(alone)/float64(n)))}
		return nil
	})
	return results, err
}

// dataIdle measures the traffic between nodes with equal data.
func dataIdle(ctx context.Context, b *run) (results []Result, err error) {
	n, carrier := b.scaled(idleKeys, 1), inMemory()
	err = withGroup(ctx, 1, carrier, func(g *group) (err error) {
		if err = fillCounters(ctx, (*g)[0], dataKeys("counter", n)); err != nil {
			return err
		}
		if err = errors.Join(g.grow(ctx, carrier, 2), g.equal(ctx)); err != nil {
			return err
		}
		if err = pause(ctx, b.quietTime()/4); err != nil { // pending messages are sent first
			return err
		}
		before, err := g.sent(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err = pause(ctx, b.quietTime()); err != nil {
			return err
		}
		after, err := g.sent(ctx)
		results = []Result{atMost(float64(after-before)/time.Since(began).Seconds()/float64(len(*g)), "bytes/s/node", maxIdle,
			fmt.Sprintf("%d equal keys on %d nodes, idle for %v", n, len(*g), b.quietTime()), "")}
		return err
	})
	return results, err
}

// dataVisible measures the time until a write of one node is visible on all others.
func dataVisible(ctx context.Context, b *run) (results []Result, err error) {
	nodes := visibleNodes
	if b.trial() {
		nodes = 3
	}
	b.progress("%d nodes join", nodes)
	err = withNATS(func(carrier carriers) error { //nolint:contextcheck // the server lives until the end
		return withGroup(ctx, nodes, carrier, func(g *group) (err error) {
			took, err := g.writes(ctx, visibleMore*b.settings.Length)
			settings := fmt.Sprintf("WriteLocal of GCounters on any of %d nodes, about one every %v, until another node has received it, embedded NATS, one process", nodes, visiblePause)
			for _, row := range []struct{ quantile, goal float64 }{{0.5, maxVisible50}, {0.99, maxVisible99}} {
				results = append(results, atMost(ms(percentile(took, row.quantile)), fmt.Sprintf("ms p%.0f", 100*row.quantile), row.goal, settings,
					fmt.Sprintf("%d observations", len(took))))
			}
			return errors.Join(err, g.equal(ctx))
		})
	})
	return results, err
}

// unseen is an update that a node has not received yet.
type unseen struct {
	node, key int
	count     uint64
	at        time.Time
}

// writes increments counters for the given time, at least once. It returns the delay until each
// increment was visible on each other node.
func (g group) writes(ctx context.Context, length time.Duration) (took []time.Duration, err error) {
	keys := dataKeys("counter", visibleKeys)
	rng := randoms(1)[0]
	counted := make([]uint64, len(keys))
	var waiting []unseen
	next := time.Now()
	for end := next.Add(length); len(waiting) > 0 || len(took) == 0 || time.Now().Before(end); {
		if now := time.Now(); !now.Before(next) && (now.Before(end) || len(took) == 0) {
			k := rng.IntN(len(keys))
			from := k % len(g) // each key has one writer, so a number identifies one update
			if err = increment(ctx, g[from], keys[k], ddata.WriteLocal()); err != nil {
				return nil, err
			}
			counted[k]++
			for i := range g {
				if i != from {
					waiting = append(waiting, unseen{i, k, counted[k], now})
				}
			}
			next = now.Add(visiblePause/2 + time.Duration(rng.Int64N(int64(visiblePause))))
		}
		left := waiting[:0]
		for _, u := range waiting {
			c, err := ddata.Get(ctx, g[u.node], ddata.Key[crdt.GCounter](keys[u.key]), ddata.ReadLocal())
			switch {
			case err != nil && !errors.Is(err, ddata.ErrNotFound):
				return nil, err
			case err == nil && c.Value() >= u.count:
				took = append(took, time.Since(u.at))
			case time.Since(u.at) > nodePatience:
				return nil, fmt.Errorf("%s is not visible on node %d", keys[u.key], u.node)
			default:
				left = append(left, u)
			}
		}
		waiting = left
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
	return took, nil
}
