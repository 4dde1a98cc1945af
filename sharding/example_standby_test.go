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

// The second node keeps the state of an account of the first one ready, and can read it.
func ExampleOptions_standbys() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	opts := sharding.Options{Shards: 20, Standbys: 1}
	a, err := openBranch(ctx, network, journal, "a:1", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	fmt.Println(eventsourcing.Ask(ctx, a.region.Ref("42"), Deposit{Amount: 10}))
	b, err := openBranch(ctx, network, journal, "b:1", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.stop(ctx)
	balance := 0
	for deposits := 2; ; deposits++ { // b holds an account after its next event
		if n, err := eventsourcing.Ask(ctx, a.region.Ref("42"), Deposit{Amount: 10}); n != 10*deposits || err != nil {
			fmt.Println(n, err)
			return
		}
		for wait := 0; wait < 100 && balance == 0; wait++ {
			b.region.ReadStandby("42", time.Minute, func(account *Account) { balance = account.Balance })
			a.region.ReadStandby("42", time.Minute, func(account *Account) { balance = account.Balance }) // if its shard is on b
			<-time.After(10 * time.Millisecond)
		}
		if balance > 0 {
			fmt.Println("a standby reads the account:", balance == 10*deposits)
			return
		}
	}
	// Output:
	// 10 <nil>
	// a standby reads the account: true
}
