// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command cart is the example of replicated data: shopping carts that three nodes share, and that
// each of them can change at any time.
//
//	go run ./examples/cart
//
// It starts three nodes and a NATS server in this process, has a customer shop at all of them, and
// crashes one node, then a second one. Begin to read at cart.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
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

// run tells the story, with a customer who waits so long for each thing, and only so long when nodes have crashed: a node asks those that
// it has not asked yet after a part of that time.
func run(ctx context.Context, w io.Writer, patience, less time.Duration) (err error) {
	s := shop{out: w, patience: patience}
	s.say("Three nodes start ...\n")
	if err = s.open(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	defer func() { err = errors.Join(err, s.close()) }()

	s.say("\nThe carts are on all nodes; a read and a write each ask two of them.\n\n")
	s.do(ctx, 0, "put in 2 tea", adding("r1", "tea", 2))
	s.do(ctx, 1, "put in 1 milk", adding("r2", "milk", 1))
	s.do(ctx, 2, "the same request again", adding("r2", "milk", 1))
	s.show(ctx, 2)

	s.say("All nodes put 1 bread in at once. All three count:\n\n")
	var all sync.WaitGroup
	for node := range s.carts {
		all.Go(func() { s.do(ctx, node, "put in 1 bread", adding(fmt.Sprintf("r%d", 3+node), "bread", 1)) })
	}
	all.Wait()
	s.show(ctx, 0)

	s.say("The tea goes, and other tea comes:\n\n")
	s.do(ctx, 2, "take out the tea", func(ctx context.Context, c Carts) error { return c.Remove(ctx, customer, "tea") })
	s.show(ctx, 0)
	s.do(ctx, 0, "put in 1 tea", adding("r6", "tea", 1))
	s.show(ctx, 1)

	s.patience = less
	s.say("shop-2 crashes. Two are a majority of three:\n\n")
	s.crash(2)
	s.do(ctx, 1, "put in 1 butter", adding("r7", "butter", 1))
	s.show(ctx, 1)

	s.say("shop-1 crashes as well. One is none, and says so after %v:\n\n", less)
	s.crash(1)
	s.do(ctx, 0, "put in 1 jam", adding("r8", "jam", 1))
	s.show(ctx, 0)
	s.say("The jam is on shop-0, and reaches the others when they can be reached. When some stay away, the cluster removes them:\nsee Config.Downing of package cluster.\n")
	return ctx.Err()
}

// adding returns what puts something into the cart.
func adding(request, product string, quantity int64) func(context.Context, Carts) error {
	return func(ctx context.Context, c Carts) error {
		return c.Add(ctx, customer, Addition{request, product, quantity})
	}
}
