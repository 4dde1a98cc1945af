// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
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

// inMemory returns the carriers of nodes in one process.
func inMemory(*testing.B) func(identity.Node) transport.Carrier {
	network := inmem.NewNetwork(inmem.NetworkConfig{})
	return func(self identity.Node) transport.Carrier { return network.Carrier(self) }
}

// overNATS returns the carriers of nodes that are connected by a broker.
func overNATS(b *testing.B) func(identity.Node) transport.Carrier {
	b.Helper()
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Close() })
	return func(self identity.Node) transport.Carrier {
		carrier, err := nats.Connect(nats.Config{Access: server.Access(), Cluster: "bench", Self: self})
		if err != nil {
			b.Fatal(err)
		}
		return carrier
	}
}

// live returns replicators on n nodes, on the real clock.
func live(b *testing.B, n int, carrier func(identity.Node) transport.Carrier) []*ddata.Replicator {
	b.Helper()
	rs := make([]*ddata.Replicator, n)
	for i := range rs {
		self, err := identity.New(fmt.Sprintf("n%d", i))
		if err != nil {
			b.Fatal(err)
		}
		node, err := cluster.Join(b.Context(), cluster.Config{Cluster: "bench", Carrier: carrier(self), Seeds: []string{"n0"}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			node.Stop()
			<-node.Done()
		})
		if err = node.AwaitUp(b.Context()); err != nil {
			b.Fatal(err)
		}
		if rs[i], err = ddata.Start(b.Context(), node, ddata.Config{}); err != nil {
			b.Fatal(err)
		}
	}
	for _, r := range rs {
		for r.ReplicaCount() != n {
			for range r.Node().Events(b.Context()) {
				if r.ReplicaCount() == n || len(r.Node().Members()) == n {
					break
				}
			}
		}
	}
	return rs
}

// count increments a counter once.
func count(ctx context.Context, b *testing.B, r *ddata.Replicator, key ddata.Key[crdt.GCounter], level ddata.WriteLevel) {
	b.Helper()
	_, err := ddata.Update(ctx, r, key, level, func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(r.Self(), 1), nil })
	if err != nil {
		b.Error(err)
	}
}

// put adds elements to a set once.
func put(ctx context.Context, b *testing.B, r *ddata.Replicator, key ddata.Key[crdt.ORSet[string]], level ddata.WriteLevel, elements ...string) {
	b.Helper()
	_, err := ddata.Update(ctx, r, key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(r.Self(), elements...) })
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkLocal measures requests of one caller that need no other node.
func BenchmarkLocal(b *testing.B) {
	r := live(b, 1, inMemory(b))[0]
	ctx := b.Context()
	count(ctx, b, r, visits, ddata.WriteLocal())
	b.Run("GCounter", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			count(ctx, b, r, visits, ddata.WriteLocal())
		}
	})
	b.Run("ORSet1000", func(b *testing.B) {
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprintf("element %d", i)
		}
		put(ctx, b, r, cart, ddata.WriteLocal(), names...)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			put(ctx, b, r, cart, ddata.WriteLocal(), names[i%1000])
		}
	})
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ddata.Get(ctx, r, visits, ddata.ReadLocal()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("GetParallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := ddata.Get(ctx, r, visits, ddata.ReadLocal()); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// callers runs f in 32 goroutines per processor until the benchmark ends.
func callers(b *testing.B, f func(ctx context.Context, i uint64)) {
	b.Helper()
	b.SetParallelism(32)
	var last atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		for pb.Next() {
			f(ctx, last.Add(1))
		}
	})
}

// BenchmarkWriteMajority compares writes to a majority with raw requests to as many peers. All
// nodes are in one process.
func BenchmarkWriteMajority(b *testing.B) { majorities(b, inMemory) }

// BenchmarkNATS is BenchmarkWriteMajority over a broker.
func BenchmarkNATS(b *testing.B) { majorities(b, overNATS) }

func majorities(b *testing.B, network func(*testing.B) func(identity.Node) transport.Carrier) {
	b.Helper()
	for _, nodes := range []int{3, 5} {
		rs := live(b, nodes, network(b))
		r := rs[0]
		payload := make([]byte, 80)
		for _, o := range rs {
			o.Node().Transport().HandleRequest(transport.FirstUserKind, func(_ context.Context, q *transport.Request) { _ = q.Reply(payload[:12]) })
		}
		b.Run(fmt.Sprintf("nodes=%d/raw", nodes), func(b *testing.B) {
			callers(b, func(ctx context.Context, i uint64) {
				done := make(chan error, nodes/2)
				for k := range nodes / 2 {
					to := rs[1+(int(i)+k)%(nodes-1)].Node().Self()
					ask := func() {
						_, err := r.Node().Transport().Request(ctx, to, transport.FirstUserKind, payload)
						done <- err
					}
					if k+1 == nodes/2 {
						ask()
					} else {
						go ask()
					}
				}
				for range nodes / 2 {
					if err := <-done; err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run(fmt.Sprintf("nodes=%d/GCounter", nodes), func(b *testing.B) {
			b.ReportAllocs()
			callers(b, func(ctx context.Context, i uint64) {
				count(ctx, b, r, ddata.Key[crdt.GCounter](fmt.Sprintf("counter-%d", i%10_000)), ddata.WriteMajority())
			})
		})
		sets := make([]ddata.Key[crdt.ORSet[string]], 1_000)
		elements := make([]string, 100)
		for i := range elements {
			elements[i] = fmt.Sprintf("element-7-%d", i)
		}
		for i := range sets {
			sets[i] = ddata.Key[crdt.ORSet[string]](fmt.Sprintf("set-%d", i))
			put(b.Context(), b, r, sets[i], ddata.WriteAll(), elements...)
		}
		b.Run(fmt.Sprintf("nodes=%d/ORSet100", nodes), func(b *testing.B) {
			b.ReportAllocs()
			callers(b, func(ctx context.Context, i uint64) {
				put(ctx, b, r, sets[i*7919%uint64(len(sets))], ddata.WriteMajority(), elements[i/7%uint64(len(elements))])
			})
		})
		b.Run(fmt.Sprintf("nodes=%d/hot", nodes), func(b *testing.B) {
			callers(b, func(ctx context.Context, _ uint64) { count(ctx, b, r, visits, ddata.WriteMajority()) })
		})
		b.Run(fmt.Sprintf("nodes=%d/one", nodes), func(b *testing.B) {
			for b.Loop() {
				count(b.Context(), b, r, visits, ddata.WriteMajority())
			}
		})
	}
}
