// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A node runs the accounts of a shard only while it holds a lease for the shard, here in memory;
// plugins/nats has leases for several processes.
func ExampleOptions_lease() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	self, err := identity.New("a:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	leases := inmem.NewLeases(2 * time.Minute)
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	node, err := cluster.Join(ctx, cluster.Config{Cluster: "bank", Carrier: network.Carrier(self), Seeds: []string{"a:1"}, Leases: leases})
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	accounts, err := sharding.Host(ctx, node, rt, AccountType(), sharding.Options{Shards: 1, Lease: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10}))
	entry, err := leases.Get(ctx, "bank-shard-account-0")
	fmt.Println(entry.Owner == node.Self().String(), err)
	node.Stop()
	<-node.Done()
	_ = rt.Close(ctx)
	_, err = leases.Get(ctx, "bank-shard-account-0")
	fmt.Println(err)
	// Output:
	// 10 <nil>
	// true <nil>
	// inmem: get "bank-shard-account-0": lease: free
}
