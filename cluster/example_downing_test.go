// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
)

// A cluster with a fixed number of five nodes continues only on a side with three of them. All nodes
// have the same settings.
func ExampleConfig_downing() {
	ctx := context.Background()
	self, err := identity.New("bank-0")
	if err != nil {
		fmt.Println(err)
		return
	}
	node, err := cluster.Join(ctx, cluster.Config{
		Cluster: "bank",
		Carrier: inmem.NewNetwork(inmem.NetworkConfig{}).Carrier(self),
		Seeds:   []string{"bank-0"},
		Downing: downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(node.AwaitUp(ctx), len(node.State().Members))
	fmt.Println(node.Shutdown(ctx))
	// Output:
	// <nil> 1
	// <nil>
}
