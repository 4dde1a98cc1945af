// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

type (
	Event interface{ isEvent() }

	Deposit struct { // is answered with the balance
		eventsourcing.Command[Account, int]
		Amount int
	}
	Deposited struct{ Amount int }
	Account   struct{ Balance int }
)

func (Deposited) isEvent() {}

func (a *Account) deposit(ctx *eventsourcing.Context[Account, Event, int], c Deposit) eventsourcing.Decision[Account, Event, int] {
	return ctx.Persist(Deposited{c.Amount}).ReplyFunc(func() int { return a.Balance })
}

func (a *Account) apply(event Event) {
	if e, ok := event.(Deposited); ok {
		a.Balance += e.Amount
	}
}

func AccountType() eventsourcing.Type[Account, Event] {
	return eventsourcing.Type[Account, Event]{
		Name:     "account",
		Commands: eventsourcing.Commands(eventsourcing.On("deposit", (*Account).deposit)),
		Apply:    (*Account).apply,
		Events:   codec.Types(codec.Name[Deposited]("deposited")),
	}
}

// Three nodes share the accounts. Each node reaches all accounts.
func Example() {
	ctx := context.Background()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal() // plugins/nats and plugins/postgres connect processes
	var regions []*sharding.Region[Account]
	for _, name := range []string{"a:1", "b:1", "c:1"} {
		self, err := identity.New(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		node, err := cluster.Join(ctx, cluster.Config{Cluster: "bank", Carrier: network.Carrier(self), Seeds: []string{"a:1"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = rt.Close(ctx) }()
		defer func() { _ = node.Shutdown(ctx) }()
		region, err := sharding.Host(ctx, node, rt, AccountType(), sharding.Options{}) // the coordinator keeps its state in the same journal
		if err != nil {
			fmt.Println(err)
			return
		}
		regions = append(regions, region)
	}
	for _, region := range regions {
		balance, err := eventsourcing.Ask(ctx, region.Ref("42"), Deposit{Amount: 10})
		fmt.Println(balance, err)
	}
	// Output:
	// 10 <nil>
	// 20 <nil>
	// 30 <nil>
}

// A type is withdrawn from a running node: the other node takes over its accounts, and the first node
// still reaches them.
func ExampleRegion_Close() {
	ctx := context.Background()
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	var regions []*sharding.Region[Account]
	for _, name := range []string{"a:1", "b:1"} {
		self, _ := identity.New(name)
		node, err := cluster.Join(ctx, cluster.Config{Cluster: "bank", Carrier: network.Carrier(self), Seeds: []string{"a:1"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = rt.Close(ctx) }()
		defer func() { _ = node.Shutdown(ctx) }()
		region, err := sharding.Host(ctx, node, rt, AccountType(), sharding.Options{Shards: 10})
		if err != nil {
			fmt.Println(err)
			return
		}
		regions = append(regions, region)
	}
	_, err := eventsourcing.Ask(ctx, regions[0].Ref("42"), Deposit{Amount: 10})
	fmt.Println(err)
	err = regions[0].Close(ctx)
	<-regions[0].Done()
	fmt.Println(err, regions[0].Err())
	balance, err := eventsourcing.Ask(ctx, regions[0].Ref("42"), Deposit{Amount: 5})
	fmt.Println(balance, err)
	// Output:
	// <nil>
	// <nil> <nil>
	// 15 <nil>
}
