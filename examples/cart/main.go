// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command cart is the example of replicated data: shopping carts that three nodes share, and that
// each of them can change at any time.
//
//	go run ./examples/cart
//
// The command starts three nodes and a NATS server in this process, shops on all of them, and
// crashes one node and then a second one. Start reading at cart.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/examples/internal/nodes"
)

const customer = "ann"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, 10*time.Second, 2*time.Second)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cart:", err)
		os.Exit(1)
	}
}

// run runs the example. patience is the time-out of each operation before the crashes; less is the
// time-out after them. less is shorter, because an operation waits a part of its time-out for a
// crashed node before it contacts another one.
func run(ctx context.Context, w io.Writer, patience, less time.Duration) (err error) {
	s := shop{out: w, patience: patience}
	s.say("Three nodes start ...\n")
	if err = s.open(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	defer func() { err = errors.Join(err, s.close()) }()

	s.say("\nThe carts are on all nodes. A read or a write needs two of them.\n\n")
	s.do(ctx, 0, "add 2 tea", adding("r1", "tea", 2))
	s.do(ctx, 1, "add 1 milk", adding("r2", "milk", 1))
	s.do(ctx, 2, "repeat that request", adding("r2", "milk", 1))
	s.show(ctx, 2)

	s.say("All nodes add 1 bread at once. All three count:\n\n")
	var all sync.WaitGroup
	for node := range s.carts {
		all.Go(func() { s.do(ctx, node, "add 1 bread", adding(fmt.Sprintf("r%d", 3+node), "bread", 1)) })
	}
	all.Wait()
	s.show(ctx, 0)

	s.say("The tea is removed, and other tea is added:\n\n")
	s.do(ctx, 2, "remove the tea", func(ctx context.Context, c Carts) error { return c.Remove(ctx, customer, "tea") })
	s.show(ctx, 0)
	s.do(ctx, 0, "add 1 tea", adding("r6", "tea", 1))
	s.show(ctx, 1)

	s.patience = less
	s.say("shop-2 crashes. Two nodes are a majority of three:\n\n")
	s.Crash(2)
	s.do(ctx, 1, "add 1 butter", adding("r7", "butter", 1))
	s.show(ctx, 1)

	s.say("shop-1 crashes as well. One node is not a majority; the write fails after %v:\n\n", less)
	s.Crash(1)
	s.do(ctx, 0, "add 1 jam", adding("r8", "jam", 1))
	s.show(ctx, 0)
	s.say("The jam is on shop-0 and spreads when the other nodes are reachable. The cluster removes nodes that stay unreachable:\nsee Config.Downing of package cluster.\n")
	return ctx.Err()
}

func adding(request, product string, quantity int64) func(context.Context, Carts) error {
	return func(ctx context.Context, c Carts) error {
		return c.Add(ctx, customer, Addition{request, product, quantity})
	}
}

// shop is a cluster of three nodes in one process. In production each is a process of its own.
type shop struct {
	out      io.Writer
	patience time.Duration // time-out of a customer's operation
	mu       sync.Mutex    // guards out

	*nodes.Cluster
	carts []Carts
}

// open starts the nodes and returns when each has found the others. After an error the shop must be
// closed as well.
func (s *shop) open(ctx context.Context) (err error) {
	if s.Cluster, err = nodes.Start(ctx, "shop", 3); err != nil {
		return err
	}
	t, err := types()
	if err != nil {
		return err
	}
	replicators, err := s.Replicate(ctx, ddata.Config{Types: t})
	for _, r := range replicators {
		s.carts = append(s.carts, Carts{r})
	}
	return err
}

// close ends all nodes. The nodes do not leave in order, because some of them have crashed.
func (s *shop) close() error {
	if s.Cluster == nil {
		return nil
	}
	return s.Close()
}

// do carries out an operation of the customer and prints its outcome.
func (s *shop) do(ctx context.Context, node int, subject string, do func(context.Context, Carts) error) {
	outcome := "done"
	if err := s.within(ctx, s.carts[node], do); err != nil {
		outcome = err.Error()
	}
	s.say("shop-%d  %-24s %s\n", node, subject, outcome)
}

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
	if errors.Is(err, ddata.ErrQuorum) {
		text = fmt.Sprintf("unknown, because no majority replied (%v)", err)
	} else if err != nil {
		text = err.Error()
	}
	s.say("shop-%d  the cart: %s\n\n", node, text)
}

// within runs a function with the customer's time-out.
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
