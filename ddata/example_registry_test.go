// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// registry stores the addresses of services: a set of addresses for each service, in a separate
// key.
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

// watch calls f with the current addresses of a service, and again after each change, until f
// returns false.
func (g registry) watch(ctx context.Context, name string, f func(addresses []string) bool) error {
	for change := range g.replicator.Subscribe(ctx, service(name).Any()) {
		s, err := service(name).Value(change)
		if err != nil {
			return err
		}
		all, err := s.Elements()
		if err != nil {
			return err
		}
		if !f(all) {
			return nil
		}
	}
	return ctx.Err()
}

// A service registry: nodes register services, and other nodes find them.
func Example_registry() {
	ctx := context.Background()
	a, b, end := pair(ctx)
	defer end()

	here, there := registry{a}, registry{b}
	fmt.Println(here.register(ctx, "mail", "10.0.0.1:25"), there.register(ctx, "mail", "10.0.0.2:25"))
	err := here.watch(ctx, "mail", func(all []string) bool { return len(all) < 2 }) // until this node has received both addresses
	fmt.Println(err)

	fmt.Println(here.unregister(ctx, "mail", "10.0.0.2:25"))
	err = there.watch(ctx, "mail", func(all []string) bool {
		if slices.Contains(all, "10.0.0.2:25") {
			return true // this node has not received the entry yet
		}
		fmt.Println(all)
		return false
	})
	fmt.Println(err)
	// Output:
	// <nil> <nil>
	// <nil>
	// <nil>
	// [10.0.0.1:25]
	// <nil>
}
