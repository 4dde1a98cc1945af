// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// Node a is busier than the others because of shard 1. One of its other shards moves to the least
// loaded node: this evens out the load as well as a move of shard 1, which would make another node
// the busiest.
//
// In a program, the coordinator measures the load: set sharding.Options.Strategy to
// sharding.Pure(allocation.ByLoad{}).
func ExampleByLoad() {
	view := allocation.View{Load: map[allocation.Shard]allocation.ShardLoad{}, Nodes: map[identity.Node]allocation.NodeLoad{}}
	for i, shards := range [][]allocation.Shard{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}} {
		n := identity.Node{Name: string(rune('a' + i)), UID: 1}
		view.Regions = append(view.Regions, allocation.Region{Node: n, Shards: shards})
		view.Members = append(view.Members, identity.Member{Node: n, Status: identity.Up})
		view.Nodes[n] = allocation.NodeLoad{CPU: 0.5, Cores: 2}
		for _, s := range shards {
			view.Load[s] = allocation.ShardLoad{Busy: 0.1, Settled: 1 << 62}
		}
	}
	view.Load[1] = allocation.ShardLoad{Busy: 0.3, Settled: 1 << 62}
	view.Load[8] = allocation.ShardLoad{Busy: 0.09, Settled: 1 << 62}

	strategy := allocation.ByLoad{Imbalance: 0.2} // moves shards when a node has 20 % more than the mean
	for _, s := range strategy.Rebalance(view) {
		view.Regions[0].Shards = []allocation.Shard{1, 2, 3} // the hand-off
		home, _ := strategy.Allocate(view, allocation.Request{Shard: s})
		fmt.Printf("shard %d moves to %s\n", s, home.Name)
	}
	// Output: shard 0 moves to c
}
