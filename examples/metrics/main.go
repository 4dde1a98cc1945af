// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command metrics is an example of replicated data: each node publishes its load, and each node knows
// the load of all, for example to send work to the idlest one.
//
//	go run ./examples/metrics
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/examples/internal/nodes"
)

// loads maps each node to its load. Each node writes its own figure, and the last write wins.
const loads = ddata.Key[crdt.LWWMap[string, float64]]("loads")

// publish stores the load of a node.
func publish(ctx context.Context, r *ddata.Replicator, busy float64) error {
	_, err := ddata.Update(ctx, r, loads, ddata.WriteLocal(), func(m crdt.LWWMap[string, float64]) (crdt.LWWMap[string, float64], error) {
		return m.Put(r.Self(), r.Node().Self().Name, busy)
	})
	return err
}

// watch calls f with the loads after each change that this node sees, until f returns false.
func watch(ctx context.Context, r *ddata.Replicator, f func(map[string]float64) bool) error {
	for change := range r.Subscribe(ctx, loads.Any()) {
		m, err := loads.Value(change)
		if err != nil {
			return err
		}
		all := map[string]float64{}
		for e, err := range m.All() {
			if err != nil {
				return err
			}
			all[e.Key] = e.Value
		}
		if !f(all) {
			return nil
		}
	}
	return ctx.Err()
}

func idlest(all map[string]float64) (node string) {
	for n, busy := range all {
		if node == "" || busy < all[node] {
			node = n
		}
	}
	return node
}

func run(ctx context.Context) (err error) {
	c, err := nodes.Start(ctx, "node", 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	replicators, err := c.Replicate(ctx, ddata.Config{})
	if err != nil {
		return err
	}
	for i, busy := range []float64{0.75, 0.25, 0.5} {
		if err = publish(ctx, replicators[i], busy); err != nil {
			return err
		}
	}
	err = watch(ctx, replicators[2], func(all map[string]float64) bool {
		if len(all) < 3 {
			return true // this node has not received all figures yet
		}
		fmt.Println("node-2 knows", all, "and sends work to", idlest(all))
		return false
	})
	if err != nil {
		return err
	}
	if err = publish(ctx, replicators[1], 0.9); err != nil {
		return err
	}
	return watch(ctx, replicators[0], func(all map[string]float64) bool {
		if all["node-1"] != 0.9 || len(all) < 3 {
			return true
		}
		fmt.Println("node-0 knows", all, "and sends work to", idlest(all))
		return false
	})
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
