// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// joinNodes starts the nodes of a cluster.
func joinNodes(ctx context.Context, names ...string) ([]*cluster.Node, error) {
	network := inmem.NewNetwork(inmem.NetworkConfig{}) // plugins/nats connects processes
	var nodes []*cluster.Node
	for _, name := range names {
		self, err := identity.New(name)
		if err != nil {
			return nil, err
		}
		node, err := cluster.Join(ctx, cluster.Config{Cluster: "shop", Carrier: network.Carrier(self), Seeds: names[:1]})
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

func shutDown(ctx context.Context, nodes []*cluster.Node) {
	for _, node := range nodes {
		_ = node.Shutdown(ctx)
	}
}

// Three nodes run two instances of a service. Each node reaches them.
func ExampleStartGroup() {
	ctx := context.Background()
	nodes, err := joinNodes(ctx, "a:1", "b:1", "c:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer shutDown(ctx, nodes)
	var prices *sharding.GroupRef
	for _, node := range nodes {
		prices, err = sharding.StartGroup(ctx, node, sharding.Group{
			Name:      "prices",
			Instances: 2,
			Run: func(ctx context.Context, i *sharding.Instance) error {
				for d := range i.All(ctx) {
					if failed := d.Reply(fmt.Appendf(nil, "instance %d: %s costs 5", i.Nr(), d.Payload)); failed != nil {
						return failed
					}
				}
				return nil
			},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err = prices.Await(ctx); err != nil {
		fmt.Println(err)
	}
	reply, err := prices.Instance(1).Ask(ctx, []byte("tea")) // Any, LeastLoaded and ByKey choose an instance
	fmt.Println(string(reply), err)
	for _, reply := range prices.AskAll(ctx, []byte("milk")) {
		fmt.Println(string(reply.Payload), reply.Err)
	}
	// Output:
	// instance 1: tea costs 5 <nil>
	// instance 0: milk costs 5 <nil>
	// instance 1: milk costs 5 <nil>
}

// Four workers share the slices of some work. Their number changes while they run.
func ExampleStartWorkers() {
	ctx := context.Background()
	nodes, err := joinNodes(ctx, "a:1", "b:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer shutDown(ctx, nodes)
	started := make(chan string, 16)
	var mailers *sharding.GroupRef
	for _, node := range nodes {
		mailers, err = sharding.StartWorkers(ctx, node, sharding.Workers{
			Name:  "mailers",
			Count: 4,
			Run: func(ctx context.Context, i *sharding.Instance) error {
				started <- fmt.Sprintf("worker %d of %d", i.Nr(), i.Count())
				<-ctx.Done() // send the mails of this worker's part
				return nil
			},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	wait := func(count int) {
		var all []string
		for range count {
			all = append(all, <-started)
		}
		slices.Sort(all)
		fmt.Println(all)
	}
	if err = mailers.Await(ctx); err != nil {
		fmt.Println(err)
	}
	wait(4)
	if err = mailers.Rescale(ctx, 2); err != nil {
		fmt.Println(err)
	}
	wait(2)
	// Output:
	// [worker 0 of 4 worker 1 of 4 worker 2 of 4 worker 3 of 4]
	// [worker 0 of 2 worker 1 of 2]
}

// Several processes share the projections of an application: each projection runs in one process,
// and in another one when that process ends.
func ExampleWorkers_projections() {
	ctx := context.Background()
	nodes, err := joinNodes(ctx, "a:1", "b:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer shutDown(ctx, nodes)
	j := inmem.NewJournal() // plugins/postgres is shared by processes
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = rt.Close(ctx) }()
	accounts, err := eventsourcing.Host(rt, AccountType())
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10}); err != nil {
		fmt.Println(err)
	}

	handled, positions := make(chan string, 16), new(projection.Memory) // pgprojection.Store is shared by processes
	read := func(name string) (*projection.Projection[Event], error) {
		return projection.New(projection.Config[Event]{
			Name: name, Journal: j, Criteria: journal.Criteria{Types: []string{"account"}}, Events: codec.Types(codec.Name[Deposited]("deposited")),
			Handler: projection.AtLeastOnce[Event]{Store: positions, Handle: func(_ context.Context, e projection.Envelope[Event]) error {
				handled <- fmt.Sprintf("%s: %s", name, e.EntityID())
				return nil
			}},
		})
	}
	names := []string{"totals", "statements", "mails"}
	for _, node := range nodes {
		_, err = sharding.StartWorkers(ctx, node, sharding.Workers{
			Name:  "projections",
			Count: len(names),
			Run: func(ctx context.Context, i *sharding.Instance) error {
				p, invalid := read(names[i.Nr()])
				if invalid != nil {
					return invalid
				}
				return p.Run(ctx)
			},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	all := []string{<-handled, <-handled, <-handled}
	slices.Sort(all)
	for _, line := range all {
		fmt.Println(line)
	}
	// Output:
	// mails: 42
	// statements: 42
	// totals: 42
}
