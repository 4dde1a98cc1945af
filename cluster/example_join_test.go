// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

// Two nodes start without seeds. An operator forms the cluster: the first node founds it, and the
// second node joins through the first one. The command "refold cluster join" does the same.
func ExampleAdmin_Join() {
	ctx := context.Background()
	network := inmem.NewNetwork(inmem.NetworkConfig{})
	start := func(name string) (*cluster.Node, error) {
		self, err := identity.New(name)
		if err != nil {
			return nil, err
		}
		return cluster.Start(cluster.Config{Cluster: "bank", Carrier: network.Carrier(self)})
	}
	a, err := start("a")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := start("b")
	if err != nil {
		fmt.Println(err)
		return
	}
	admin := cluster.NewAdmin(network.Operator("ops"))
	for _, node := range []*cluster.Node{a, b} {
		err = transport.ErrNoNode
		for errors.Is(err, transport.ErrNoNode) { // operators reach a node soon after its start
			err = admin.Join(ctx, node.Self().Name, "a") // a joins through itself: it founds the cluster
		}
		fmt.Println(err, node.AwaitUp(ctx))
	}
	fmt.Println(len(a.State().Members), "members")
	for _, node := range []*cluster.Node{b, a} {
		node.Stop()
		<-node.Done()
	}
	// Output:
	// <nil> <nil>
	// <nil> <nil>
	// 2 members
}
