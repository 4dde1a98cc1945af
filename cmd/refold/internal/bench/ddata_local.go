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
	"github.com/refold-io/refold/transport"
)

const (
	localSize  = 1_000  // elements of the updated set
	wireSize   = 10_000 // elements of the set whose delta is measured
	memoryKeys = 100_000

	maxCounterNs, maxSetNs, maxReadNs = 3_000, 20_000, 1_000
	maxDeltaBytes, maxEntryBytes      = 300, 600
)

// group is a set of replicators in this process.
type group []*ddata.Replicator

func (g group) close() {
	for _, r := range g {
		r.Node().Stop()
	}
	for _, r := range g {
		<-r.Node().Done()
	}
}

// newGroup starts n replicators and waits until each has all others as replicas.
func newGroup(ctx context.Context, n int, carrier func(self identity.Node) (transport.Carrier, error)) (g group, err error) {
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	for range n {
		if g, err = g.start(ctx, carrier); err != nil {
			return g, err
		}
		if len(g) == 1 { // the others join it
			if err = g.up(ctx); err != nil {
				return g, err
			}
		}
	}
	return g, errors.Join(g.up(ctx), g.see(ctx))
}

// up waits until all nodes are Up.
func (g group) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for _, r := range g {
		if err := r.Node().AwaitUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start adds a replicator whose node joins the others.
func (g group) start(ctx context.Context, carrier func(self identity.Node) (transport.Carrier, error)) (group, error) {
	self, err := identity.New(fmt.Sprintf("n%d", len(g)+1))
	if err != nil {
		return g, err
	}
	on, err := carrier(self)
	if err != nil {
		return g, err
	}
	node, err := cluster.Start(cluster.Config{Cluster: "bench", Carrier: on, Seeds: []string{"n1"}}) //nolint:contextcheck // it ends with close
	if err != nil {
		return g, err
	}
	r, err := ddata.Start(ctx, node, ddata.Config{})
	if err != nil {
		node.Stop()
		<-node.Done()
		return g, err
	}
	return append(g, r), nil
}

// see waits until each replicator counts all others.
func (g group) see(ctx context.Context) error {
	return g.until(ctx, func() (bool, error) {
		for _, r := range g {
			if r.ReplicaCount() != len(g) {
				return false, nil
			}
		}
		return true, nil
	})
}

// equal waits until all replicators hold the same data.
func (g group) equal(ctx context.Context) error {
	return g.until(ctx, func() (bool, error) {
		var first ddata.Stats
		for i, r := range g {
			s, err := r.Stats(ctx)
			if err != nil {
				return false, err
			}
			if i == 0 {
				first = s
			}
			if s.Digest != first.Digest {
				return false, nil
			}
		}
		return true, nil
	})
}

func (g group) until(ctx context.Context, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// inMemory returns carriers of one in-memory network.
func inMemory() func(self identity.Node) (transport.Carrier, error) {
	network := inmem.NewNetwork(inmem.NetworkConfig{})
	return func(self identity.Node) (transport.Carrier, error) { return network.Carrier(self), nil }
}

// fillCounters increments the counters of as many keys once.
func fillCounters(ctx context.Context, r *ddata.Replicator, keys []ddata.Key[crdt.GCounter]) error {
	for _, key := range keys {
		if err := countOnce(ctx, r, key); err != nil {
			return err
		}
	}
	return nil
}

func countOnce(ctx context.Context, r *ddata.Replicator, key ddata.Key[crdt.GCounter]) error {
	_, err := ddata.Update(ctx, r, key, ddata.WriteLocal(), func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(r.Self(), 1), nil })
	return err
}

func addElements(ctx context.Context, r *ddata.Replicator, key ddata.Key[crdt.ORSet[string]], level ddata.WriteLevel, elements ...string) error {
	_, err := ddata.Update(ctx, r, key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(r.Self(), elements...) })
	return err
}

// dataLocal measures local updates and reads on one of three nodes.
func dataLocal(ctx context.Context, b *run) ([]Result, error) {
	g, err := newGroup(ctx, 3, inMemory())
	if err != nil {
		return nil, err
	}
	defer g.close()
	r := g[0]
	counter, set := ddata.Key[crdt.GCounter]("counter"), ddata.Key[crdt.ORSet[string]]("set")
	elements := setElements(0, localSize)
	err = errors.Join(countOnce(ctx, r, counter), addElements(ctx, r, set, ddata.WriteLocal(), elements...))
	if err != nil {
		return nil, err
	}
	counted := uint64(1)
	var results []Result
	for _, o := range []struct {
		subject string
		goal    float64
		f       func(i int) error
	}{
		{"one more on a GCounter, WriteLocal", maxCounterNs, func(int) error { counted++; return countOnce(ctx, r, counter) }},
		{fmt.Sprintf("one element of an ORSet of %d added, WriteLocal", localSize), maxSetNs, func(i int) error {
			return addElements(ctx, r, set, ddata.WriteLocal(), elements[i%localSize])
		}},
		{"read of a GCounter, ReadLocal", maxReadNs, func(int) error {
			c, err := ddata.Get(ctx, r, counter, ddata.ReadLocal())
			if err == nil && c.Value() != counted {
				err = fmt.Errorf("the counter holds %d, want %d", c.Value(), counted)
			}
			return err
		}},
	} {
		var ns []float64
		for i := range max(1, b.settings.Rounds) {
			b.progress("round %d of %d", i+1, b.settings.Rounds)
			c, err := together(1, b.settings.Length, func(_, n int) error { return o.f(n) })
			if err != nil {
				return nil, err
			}
			ns = append(ns, float64(c.elapsed.Nanoseconds())/float64(c.ops))
		}
		results = append(results, atMost(median(ns), "ns", o.goal, o.subject+", one caller, 3 nodes", ""))
	}
	return results, g.equal(ctx)
}

// dataWire measures the bytes that one more element costs on the wire.
func dataWire(ctx context.Context, b *run) ([]Result, error) {
	g, err := newGroup(ctx, 2, inMemory())
	if err != nil {
		return nil, err
	}
	defer g.close()
	set := ddata.Key[crdt.ORSet[string]]("set")
	n := b.scaled(wireSize)
	if err = addElements(ctx, g[0], set, ddata.WriteAll(), setElements(0, n)...); err != nil {
		return nil, err
	}
	if err = g.equal(ctx); err != nil {
		return nil, err
	}
	rounds := max(1, b.settings.Rounds)
	var sent []float64
	for i := range rounds {
		var before, after ddata.Stats
		if before, err = g[0].Stats(ctx); err != nil {
			return nil, err
		}
		if err = addElements(ctx, g[0], set, ddata.WriteAll(), fmt.Sprint("one more ", i)); err != nil {
			return nil, err
		}
		if after, err = g[0].Stats(ctx); err != nil {
			return nil, err
		}
		bytes := 0.0
		for k := range after.Protocol.SentBytes {
			bytes += float64(after.Protocol.SentBytes[k] - before.Protocol.SentBytes[k])
		}
		sent = append(sent, bytes)
	}
	whole, err := ddata.Get(ctx, g[1], set, ddata.ReadLocal())
	if err != nil {
		return nil, err
	}
	if whole.Len() != n+rounds || !whole.Contains("one more 0") {
		return nil, fmt.Errorf("the other node has %d elements, want %d", whole.Len(), n+rounds)
	}
	encoded, err := whole.AppendBinary(nil)
	return []Result{Result{
		Value: median(sent), Unit: "bytes", Ratio: median(sent), Goal: maxDeltaBytes, Better: lower,
		Settings: fmt.Sprintf("all messages to the other node for one element more in an ORSet of %d, the median of %d: a comparison may fall among them", n, rounds),
		Detail:   fmt.Sprintf("the whole set has %d bytes", len(encoded)),
	}.judge()}, err
}

// dataMemory measures the memory of an entry beyond its value.
func dataMemory(ctx context.Context, b *run) ([]Result, error) {
	g, err := newGroup(ctx, 1, inMemory())
	if err != nil {
		return nil, err
	}
	defer g.close()
	n := b.scaled(memoryKeys)
	keys := dataKeys[crdt.GCounter]("counter", n)
	self, err := identity.New("other")
	if err != nil {
		return nil, err
	}
	by, err := crdt.NewSelf(self)
	if err != nil {
		return nil, err
	}
	before := heap()
	values := make([]crdt.GCounter, n) // the memory of the values alone
	for i := range values {
		values[i] = crdt.GCounter{}.Add(by, 1).ResetDelta()
	}
	alone := heap() - before - uint64(n)*8 //nolint:gosec // a count
	runtime.KeepAlive(values)
	before = heap()
	if err = fillCounters(ctx, g[0], keys); err != nil {
		return nil, err
	}
	if err = g.equal(ctx); err != nil {
		return nil, err
	}
	used := heap() - before
	runtime.KeepAlive(keys)
	perEntry := (float64(used) - float64(alone)) / float64(n)
	return []Result{Result{
		Value: perEntry, Unit: "bytes/entry", Ratio: perEntry, Goal: maxEntryBytes, Better: lower,
		Settings: fmt.Sprintf("%d entries, each a GCounter of one node, beyond the value", n),
		Detail:   fmt.Sprintf("a value takes %.0f", float64(alone)/float64(n)),
	}.judge()}, nil
}
