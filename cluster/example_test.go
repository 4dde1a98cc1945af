// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
)

// Two nodes form a cluster. A singleton, which runs on one of them, adds up the numbers that it
// receives.
func Example() {
	ctx := context.Background()
	network := inmem.NewNetwork(inmem.NetworkConfig{}) // plugins/nats connects processes
	join := func(name string) (*cluster.Node, error) {
		self, err := identity.New(name)
		if err != nil {
			return nil, err
		}
		return cluster.Join(ctx, cluster.Config{Cluster: "bank", Carrier: network.Carrier(self), Seeds: []string{"a:1"}})
	}
	a, err := join("a:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := join("b:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	counter := cluster.Singleton{Name: "counter", Run: func(ctx context.Context, inbox *cluster.Inbox) error {
		count := byte(0)
		for d := range inbox.All(ctx) {
			count += d.Payload[0]
			_ = d.Reply([]byte{count})
		}
		return nil
	}}
	for _, node := range []*cluster.Node{a, b} { // the instance runs on the oldest node
		if err = node.Singleton(ctx, counter); err != nil {
			fmt.Println(err)
		}
	}
	proxy, err := b.Proxy(ctx, cluster.ProxyConfig{Singleton: "counter"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		answer, err := proxy.Ask(ctx, []byte{21})
		fmt.Println(answer[0], err)
	}
	fmt.Println(b.Shutdown(ctx), b.Err()) // at SIGTERM: see ShutdownOnSignal
	fmt.Println(a.Shutdown(ctx), a.Err())
	// Output:
	// 21 <nil>
	// 42 <nil>
	// <nil> cluster: this node has left
	// <nil> cluster: this node has left
}
