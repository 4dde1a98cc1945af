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

// The senders of these accounts retry. So their shards move without waiting for all nodes.
func ExampleOptions_handOff() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	opts := sharding.Options{Shards: 20, HandOff: sharding.HandOffAtOnce}
	a, err := openBranch(ctx, network, journal, "a:1", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := openBranch(ctx, network, journal, "b:1", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.stop(ctx)
	fmt.Println(eventsourcing.Ask(ctx, b.region.Ref("42"), Deposit{Amount: 10}))
	fmt.Println("a leaves:", a.close(ctx))
	for {
		balance, err := eventsourcing.Ask(ctx, b.region.Ref("42"), Deposit{Amount: 10})
		if eventsourcing.NotDone(err) { // the command was refused during the move
			continue
		}
		fmt.Println(balance, err)
		break
	}
	// Output:
	// 10 <nil>
	// a leaves: <nil>
	// 20 <nil>
}

// A node is drained before it is stopped: its shards move while it still runs. The command "refold
// shards drain" does the same.
func ExampleRegion_Drain() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	a, err := openBranch(ctx, network, journal, "a:1", sharding.Options{Shards: 20})
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
	fmt.Println(eventsourcing.Ask(ctx, a.region.Ref("42"), Deposit{Amount: 10}))
	fmt.Println("drain:", a.region.Drain(ctx))                                   // waits until a hosts no shards
	fmt.Println(eventsourcing.Ask(ctx, a.region.Ref("42"), Deposit{Amount: 10})) // a still sends commands
	// Output:
	// 10 <nil>
	// drain: <nil>
	// 20 <nil>
}
