// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Command 7-nodes is the seventh step of the tutorial: three nodes share the orders, and one of them
// stops.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/docs/tutorial/order"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// endregion

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	err := run(ctx)
	cancel()
	if err != nil {
		log.Fatal(err)
	}
}

// node is one of the three nodes. In production each node is a process on its own machine.
type node struct {
	*cluster.Node

	rt     *es.Runtime
	orders *sharding.Region[order.Order]
}

// start joins the cluster and hosts orders on the new node.
func start(ctx context.Context, name string, access nats.Access, db store.DB) (n *node, err error) {
	self, err := identity.New(name)
	if err != nil {
		return nil, err
	}
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: "shop", Self: self})
	if err != nil {
		return nil, err
	}
	n = new(node)
	if n.Node, err = cluster.Join(ctx, cluster.Config{Cluster: "shop", Carrier: carrier, Seeds: []string{"shop-0"}}); err != nil {
		return nil, err
	}
	if n.rt, err = es.Open(es.Config{Store: db}); err != nil {
		return n, err
	}
	if n.orders, err = sharding.Host(ctx, n.Node, n.rt, order.Type, sharding.Options{}); err != nil {
		return n, err
	}
	return n, n.AwaitUp(ctx)
}

// stop hands the orders of the node off to the others and leaves the cluster.
func (n *node) stop(ctx context.Context) error {
	err := n.Shutdown(ctx)
	if n.rt != nil {
		err = errors.Join(err, n.rt.Close(ctx))
	}
	return err
}

// startAll starts three nodes. After an error it returns those that have started.
func startAll(ctx context.Context, access nats.Access, db store.DB) (map[string]*node, error) {
	nodes := map[string]*node{}
	for _, name := range []string{"shop-0", "shop-1", "shop-2"} {
		n, err := start(ctx, name, access, db)
		if n != nil {
			nodes[name] = n
		}
		if err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

var add = order.Add{Product: "tea", Units: 1, Price: 350}

func run(ctx context.Context) (err error) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	db, err := inmem.Open() // all nodes share a database: in production PostgreSQL
	if err != nil {
		return err
	}
	nodes, err := startAll(ctx, server.Access(), db)
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.stop(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		total, asked := es.Ask(ctx, nodes[name].orders.Ref("42"), add)
		if asked != nil {
			return asked
		}
		fmt.Printf("%s: the total of order 42 is %d cents\n", name, total)
	}

	home, err := homeOf(ctx, nodes["shop-0"], "42")
	if err != nil {
		return err
	}
	if err = nodes[home].stop(ctx); err != nil {
		return err
	}
	delete(nodes, home)
	fmt.Println("the node with order 42 has stopped")
	total := 0
	for _, n := range nodes { // the other two
		if total, err = es.Ask(ctx, n.orders.Ref("42"), add); err != nil {
			return err
		}
	}
	fmt.Printf("after a unit from each of the other nodes, the total of order 42 is %d cents\n", total)
	return nil
}

// homeOf returns the name of the node on which an order is.
func homeOf(ctx context.Context, n *node, id string) (string, error) {
	shard, err := n.orders.ShardOf(id)
	if err != nil {
		return "", err
	}
	home, known, err := n.orders.Home(ctx, shard)
	if err == nil && !known {
		err = errors.New("the home of the order is not known")
	}
	return home.Name, err
}
