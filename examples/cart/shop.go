// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
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
	mu       sync.Mutex    // of out

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
	for _, c := range s.carts { // before that, a majority would be one of fewer
		if err := c.data.AwaitReplicas(ctx, nodes); err != nil {
			return err
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
	t, err := types()
	if err != nil {
		return err
	}
	data, err := ddata.Start(ctx, node, ddata.Config{Types: t})
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

// do prints what a customer does, and how it ends.
func (s *shop) do(ctx context.Context, node int, what string, do func(context.Context, Carts) error) {
	outcome := "done"
	if err := s.within(ctx, s.carts[node], do); err != nil {
		outcome = err.Error()
	}
	s.say("shop-%d  %-24s %s\n", node, what, outcome)
}

// show prints what a customer finds in the cart.
func (s *shop) show(ctx context.Context, node int) {
	var items []Item
	err := s.within(ctx, s.carts[node], func(ctx context.Context, c Carts) (err error) {
		items, err = c.Items(ctx, customer)
		return err
	})
	var texts []string
	for _, i := range items {
		texts = append(texts, fmt.Sprintf("%d %s", i.Quantity, i.Product))
	}
	text := strings.Join(texts, ", ")
	switch {
	case errors.Is(err, ddata.ErrQuorum):
		text = fmt.Sprintf("unknown, as no majority answers (%v)", err)
	case err != nil:
		text = err.Error()
	}
	s.say("shop-%d  the cart: %s\n\n", node, text)
}

// within does something for as long as a customer waits.
func (s *shop) within(ctx context.Context, c Carts, do func(context.Context, Carts) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	return do(ctx, c)
}

func (s *shop) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, format, args...)
}
