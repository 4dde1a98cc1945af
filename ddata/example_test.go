// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
)

// pair returns the replicators of two nodes and a function that stops them.
func pair(ctx context.Context) (a, b *ddata.Replicator, end func()) {
	return pairOf(ctx, ddata.Config{})
}

// pairOf is pair with a configuration.
func pairOf(ctx context.Context, cfg ddata.Config) (a, b *ddata.Replicator, end func()) {
	cfg.Timeout = time.Minute                          // timeout of requests without a deadline; 5 s by default
	network := inmem.NewNetwork(inmem.NetworkConfig{}) // plugins/nats connects processes
	start := func(name string) *ddata.Replicator {
		self, err := identity.New(name)
		if err != nil {
			panic(err)
		}
		node, err := cluster.Join(ctx, cluster.Config{Cluster: "shop", Carrier: network.Carrier(self), Seeds: []string{"a:1"}})
		if err != nil {
			panic(err)
		}
		if err = node.AwaitUp(ctx); err != nil {
			panic(err)
		}
		r, err := ddata.Start(ctx, node, cfg)
		if err != nil {
			panic(err)
		}
		return r
	}
	a, b = start("a:1"), start("b:1")
	for _, r := range []*ddata.Replicator{a, b} {
		if err := r.AwaitReplicas(ctx, 2); err != nil {
			panic(err)
		}
	}
	return a, b, func() {
		_ = b.Node().Shutdown(ctx)
		_ = a.Node().Shutdown(ctx)
	}
}

// A counter that both nodes increment.
func Example() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	visits := ddata.Key[crdt.PNCounter]("visits")
	for _, r := range []*ddata.Replicator{a, b} {
		n, err := ddata.Update(ctx, r, visits, ddata.WriteAll(), func(c crdt.PNCounter) (crdt.PNCounter, error) {
			return c.Add(r.Self(), 21), nil
		})
		fmt.Println(n.Value(), err)
	}
	n, err := ddata.Get(ctx, a, visits, ddata.ReadLocal())
	fmt.Println(n.Value(), err)

	_, err = ddata.Get(ctx, a, visits, ddata.ReadFrom(3))
	if e, ok := errors.AsType[*ddata.Error](err); ok && errors.Is(err, ddata.ErrQuorum) {
		fmt.Println(e.Required, "of", e.Total, "are too many")
	}

	fmt.Println(ddata.Delete(ctx, b, visits, ddata.WriteAll()))
	_, err = ddata.Get(ctx, a, visits, ddata.ReadLocal())
	fmt.Println(err)
	// Output:
	// 21 <nil>
	// 42 <nil>
	// 42 <nil>
	// 3 of 2 are too many
	// <nil>
	// ddata: get "visits": deleted
}

// A node changes a key, and the other node receives the change.
func ExampleReplicator_Subscribe() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	mine := ddata.Key[crdt.ORSet[string]]("cart-17")
	_, err := ddata.Update(ctx, a, mine, ddata.WriteMajority(), func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
		return s.Add(a.Self(), "milk", "tea")
	})
	if err != nil {
		fmt.Println(err)
	}
	for change := range b.Subscribe(ctx, ddata.Prefix("cart-")) {
		s, err := mine.Value(change)
		if err != nil {
			fmt.Println(err)
		}
		elements, err := s.Elements()
		fmt.Println(change.Key, change.Kind, elements, err)
		break
	}
	// Output: cart-17 changed [milk tea] <nil>
}
