// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

// Node a accepts requests of clients and hosts no accounts. It starts an account on node b without a
// command, and sends commands.
func ExampleHost_proxyOnly() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	a, err := openBranch(ctx, network, journal, "a:1", sharding.Options{Shards: 20, ProxyOnly: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	b, err := openBranch(ctx, network, journal, "b:1", sharding.Options{Shards: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.stop(ctx)
	fmt.Println("started:", a.region.Start(ctx, "42"))
	fmt.Println(eventsourcing.Ask(ctx, a.region.Ref("42"), Deposit{Amount: 10}))
	state, err := b.region.State(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, shard := range state.Shards {
		fmt.Println("b runs", shard.Entities)
	}
	// Output:
	// started: <nil>
	// 10 <nil>
	// b runs [42]
}
