// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command registry is an example of replicated data: a registry in which services publish their
// addresses on one node and are found on every node.
//
//	go run ./examples/registry
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/examples/internal/nodes"
)

// registry stores a set of addresses for each service, in a key of its own.
type registry struct{ replicator *ddata.Replicator }

type addresses = crdt.ORSet[string]

func service(name string) ddata.Key[addresses] { return ddata.Key[addresses]("service-" + name) }

// register adds an address. Other nodes see it soon afterwards.
func (g registry) register(ctx context.Context, name, address string) error {
	_, err := ddata.Update(ctx, g.replicator, service(name), ddata.WriteLocal(), func(s addresses) (addresses, error) {
		return s.Add(g.replicator.Self(), address)
	})
	return err
}

// unregister removes an address.
func (g registry) unregister(ctx context.Context, name, address string) error {
	_, err := ddata.Update(ctx, g.replicator, service(name), ddata.WriteLocal(), func(s addresses) (addresses, error) {
		return s.Remove(g.replicator.Self(), address)
	})
	return err
}

// find returns the addresses of a service when there is the given number of them.
func (g registry) find(ctx context.Context, name string, count int) ([]string, error) {
	for change := range g.replicator.Subscribe(ctx, service(name).Any()) {
		s, err := service(name).Value(change)
		if err != nil {
			return nil, err
		}
		all, err := s.Elements()
		if err != nil {
			return nil, err
		}
		if len(all) == count {
			slices.Sort(all)
			return all, nil
		}
	}
	return nil, ctx.Err()
}

func run(ctx context.Context) (err error) {
	c, err := nodes.Start(ctx, "host", 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	replicators, err := c.Replicate(ctx, ddata.Config{})
	if err != nil {
		return err
	}
	a, b, client := registry{replicators[0]}, registry{replicators[1]}, registry{replicators[2]}

	err = errors.Join(a.register(ctx, "mail", "10.0.0.1:25"), b.register(ctx, "mail", "10.0.0.2:25"))
	if err != nil {
		return err
	}
	all, err := client.find(ctx, "mail", 2)
	if err != nil {
		return err
	}
	fmt.Println("host-2 finds mail at", all)

	if err = b.unregister(ctx, "mail", "10.0.0.2:25"); err != nil {
		return err
	}
	all, err = client.find(ctx, "mail", 1)
	fmt.Println("host-2 finds mail at", all)
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
