// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// A third node has joined. New shards go to it, and some others move to it.
func Example() {
	var view allocation.View
	for name, shards := range []([]allocation.Shard){{0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}, nil} {
		n := identity.Node{Name: string(rune('a' + name)), UID: 1}
		view.Regions = append(view.Regions, allocation.Region{Node: n, Shards: shards})
		view.Members = append(view.Members, identity.Member{Node: n, Status: identity.Up})
	}
	strategy := allocation.LeastShards{RelativeLimit: 0.2} // two of 10 shards at a time
	home, ok := strategy.Allocate(view, allocation.Request{Shard: 10, Requester: view.Regions[0].Node})
	fmt.Println(home.Name, ok)
	fmt.Println(strategy.Rebalance(view))
	// Output:
	// c true
	// [0 1]
}
