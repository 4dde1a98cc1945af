// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/passivation"
	"github.com/refold-io/refold/store"
)

// branch is a node of a bank that hosts accounts.
type branch struct {
	node   *cluster.Node
	rt     *eventsourcing.Runtime
	region *sharding.Region[Account]
}

// openBranch starts a branch. All branches share the network and the journal.
func openBranch(ctx context.Context, network *inmem.Network, journal *inmem.Journal, name string, opts sharding.Options) (*branch, error) {
	self, err := identity.New(name)
	if err != nil {
		return nil, err
	}
	node, err := cluster.Join(ctx, cluster.Config{Cluster: "bank", Carrier: network.Carrier(self), Seeds: []string{"a:1"}})
	if err != nil {
		return nil, err
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)}) //nolint:contextcheck // used after the call
	if err != nil {
		return nil, errors.Join(err, node.Shutdown(ctx))
	}
	region, err := sharding.Host(ctx, node, rt, AccountType(), opts)
	if err == nil {
		err = region.AwaitReady(ctx)
	}
	b := &branch{node, rt, region}
	if err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

// close leaves the cluster. The shards of the node move to other nodes before it leaves.
func (b *branch) close(ctx context.Context) error {
	return errors.Join(b.node.Shutdown(ctx), b.rt.Close(ctx))
}

// stop ends the node without leaving.
func (b *branch) stop(ctx context.Context) {
	b.node.Stop()
	<-b.node.Done()
	_ = b.rt.Close(ctx)
}

// Two nodes share the accounts. When one of them leaves, the other one hosts all accounts.
func ExampleHost() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	a, err := openBranch(ctx, network, journal, "a:1", sharding.Options{Shards: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := openBranch(ctx, network, journal, "b:1", sharding.Options{Shards: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(eventsourcing.Ask(ctx, a.region.Ref("42"), Deposit{Amount: 10}))
	fmt.Println(eventsourcing.Ask(ctx, b.region.Ref("42"), Deposit{Amount: 10}))
	fmt.Println("a leaves:", a.close(ctx))
	fmt.Println(eventsourcing.Ask(ctx, b.region.Ref("42"), Deposit{Amount: 10}))
	fmt.Println("b leaves:", b.close(ctx))
	// Output:
	// 10 <nil>
	// 20 <nil>
	// a leaves: <nil>
	// 30 <nil>
	// b leaves: <nil>
}

// A Ref stays valid while its entity starts, stops and moves. Region.Home returns the current home.
func ExampleRegion_Ref() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	a, err := openBranch(ctx, inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal(), "a:1", sharding.Options{Shards: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	account := a.region.Ref("42")
	fmt.Println(eventsourcing.Tell(ctx, account, Deposit{Amount: 5})) // Tell waits for no reply
	fmt.Println(eventsourcing.Ask(ctx, account, Deposit{Amount: 10}))
	number, err := a.region.ShardOf("42")
	if err != nil {
		fmt.Println(err)
		return
	}
	home, known, err := a.region.Home(ctx, number)
	fmt.Println(home.Name, known, err)
	// Output:
	// <nil>
	// 15 <nil>
	// a:1 true <nil>
}

// At most two entities are in memory. The least recently used entity leaves memory. Its next
// command starts it again.
func ExampleOptions_passivation() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	a, err := openBranch(ctx, inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal(), "a:1", sharding.Options{
		Shards:      1,
		Passivation: passivation.Settings{Limit: 2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	for _, id := range []string{"1", "2", "3"} {
		fmt.Println(eventsourcing.Ask(ctx, a.region.Ref(id), Deposit{Amount: 10}))
	}
	for { // the entity leaves memory after it has handled its commands
		s, err := a.region.State(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		if running := s.Shards[0].Entities; len(running) == 2 {
			fmt.Println("in memory:", running)
			break
		}
	}
	fmt.Println(eventsourcing.Ask(ctx, a.region.Ref("1"), Deposit{Amount: 10}))
	// Output:
	// 10 <nil>
	// 10 <nil>
	// 10 <nil>
	// in memory: [2 3]
	// 20 <nil>
}

// Prints the number of entities of each node, and the nodes that have not replied in time.
func ExampleRegion_Statistics() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	a, err := openBranch(ctx, inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal(), "a:1", sharding.Options{Shards: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	for id := range 100 {
		if _, err = eventsourcing.Ask(ctx, a.region.Ref(fmt.Sprint(id)), Deposit{Amount: 1}); err != nil {
			fmt.Println(err)
			return
		}
	}
	s, err := a.region.Statistics(ctx, time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range s.Regions {
		fmt.Printf("%s: %d entities in %d shards\n", r.Node.Name, r.Entities(), len(r.Shards))
	}
	fmt.Println("missing:", s.Missing)
	// Output:
	// a:1: 100 entities in 20 shards
	// missing: []
}

// Presence does not start the account.
func ExampleRegion_Presence() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	a, err := openBranch(ctx, inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal(), "a:1", sharding.Options{Shards: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.stop(ctx)
	fmt.Println(a.region.Presence(ctx, "42"))
	fmt.Println(eventsourcing.Ask(ctx, a.region.Ref("42"), Deposit{Amount: 10}))
	fmt.Println(a.region.Presence(ctx, "42"))
	// Output:
	// absent <nil>
	// 10 <nil>
	// running <nil>
}
