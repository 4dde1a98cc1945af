// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command fsmcart runs shopping carts as persistent state machines. A customer that adds no item for a
// while becomes inactive, also if the program restarts in the meantime.
//
//	go run ./examples/fsmcart
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run shows a cart that is restarted while its customer is idle, and a cart that is paid.
func run(ctx context.Context, out io.Writer) error {
	db := store.Of(inmem.NewJournal(), nil)
	moves := make(chan string, 100)
	err := with(ctx, db, moves, func(carts *eventsourcing.Local[Cart, any]) error {
		for _, item := range []string{"shirt", "shoes"} {
			n, err := eventsourcing.Ask(ctx, carts.Ref("alice"), AddItem{Item: item})
			if err != nil {
				return err
			}
			show(out, fmt.Sprintf("alice added %s, %d in the cart;", item, n), <-moves)
		}
		return nil
	})
	if err != nil {
		return err
	}
	show(out, "restart")
	return with(ctx, db, moves, func(carts *eventsourcing.Local[Cart, any]) error {
		if err := carts.Start(ctx, "alice"); err != nil {
			return err
		}
		show(out, "alice did nothing;", <-moves)
		show(out, "alice did nothing;", <-moves)
		if _, err := eventsourcing.Ask(ctx, carts.Ref("bob"), AddItem{Item: "coat"}); err != nil {
			return err
		}
		show(out, "bob added coat;", <-moves)
		if _, err := eventsourcing.Ask(ctx, carts.Ref("bob"), Buy{}); err != nil {
			return err
		}
		show(out, "bob bought;", <-moves)
		_, err := eventsourcing.Ask(ctx, carts.Ref("bob"), AddItem{Item: "hat"})
		show(out, "bob added hat:", eventsourcing.StatusOf(err).Code)
		return nil
	})
}

// with runs a program with carts and ends it.
func with(ctx context.Context, db store.DB, moves chan<- string, use func(*eventsourcing.Local[Cart, any]) error) (err error) {
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db}) //nolint:contextcheck // the runtime ends with Close
	if err != nil {
		return err
	}
	defer func() {
		if closed := rt.Close(ctx); err == nil {
			err = closed
		}
	}()
	typ, err := cartType(300*time.Millisecond, moves)
	if err != nil {
		return err
	}
	carts, err := eventsourcing.Host(rt, typ)
	if err != nil {
		return err
	}
	return use(carts)
}

func show(out io.Writer, text ...any) {
	fmt.Fprintln(out, text...) //nolint:errcheck // standard output, or memory in the test
}
