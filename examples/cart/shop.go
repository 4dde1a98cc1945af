// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// shop is a cluster of three nodes, here in one process; each would be a process of its own.
type shop struct {
	out      io.Writer
	patience time.Duration // of a customer

	server *embedded.Server
	nodes  []*cluster.Node
	carts  []Carts
}

const nodes = 3

// open starts the nodes, and returns when they have found each other. After an error too the shop has to be closed.
func (s *shop) open(ctx context.Context) (err error) {
	if s.server, err = embedded.Start(embedded.Config{}); err != nil { //nolint:contextcheck // the server outlives the call
		return err
	}
	for i := range nodes {
		if err := s.add(ctx, fmt.Sprintf("shop-%d", i)); err != nil {
			return err
		}
	}
	for _, c := range s.carts {
		for c.data.ReplicaCount() < nodes {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func (s *shop) add(ctx context.Context, name string) error {
	self, err := identity.New(name)
	if err != nil {
		return err
	}
	carrier, err := nats.Connect(nats.Config{Access: s.server.Access(), Cluster: "shop", Self: self}) //nolint:contextcheck // as above
	if err != nil {
		return err
	}
	node, err := cluster.Join(ctx, cluster.Config{Cluster: "shop", Carrier: carrier, Seeds: []string{"shop-0"}})
	if err != nil {
		return err
	}
	s.nodes = append(s.nodes, node)
	if err = node.AwaitUp(ctx); err != nil {
		return err
	}
	data, err := ddata.Start(ctx, node, ddata.Config{})
	if err != nil {
		return err
	}
	s.carts = append(s.carts, Carts{data})
	return nil
}

// crash ends a node without a word to the others.
func (s *shop) crash(node int) {
	s.nodes[node].Stop()
	<-s.nodes[node].Done()
}

// close ends all nodes. They don't leave in good order, which needs the others: some have crashed.
func (s *shop) close() error {
	for i := range s.nodes {
		s.crash(i)
	}
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}

// show prints what a customer does, and what is in the cart then.
func (s *shop) show(ctx context.Context, node int, what string, do func(context.Context, Carts) error) {
	outcome := "done"
	if err := s.within(ctx, s.carts[node], do); err != nil {
		outcome = err.Error()
	}
	cart := "unknown, as no majority can be asked"
	var items []Item
	err := s.within(ctx, s.carts[node], func(ctx context.Context, c Carts) (err error) {
		items, err = c.Items(ctx, customer)
		return err
	})
	if err == nil {
		var texts []string
		for _, i := range items {
			texts = append(texts, fmt.Sprintf("%d %s", i.Quantity, i.Product))
		}
		cart = strings.Join(texts, ", ")
	}
	s.say("shop-%d  %-28s %s\n        in the cart: %s\n\n", node, what, outcome, cart)
}

// within does something for as long as a customer waits.
func (s *shop) within(ctx context.Context, c Carts, do func(context.Context, Carts) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	return do(ctx, c)
}

func (s *shop) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
}
