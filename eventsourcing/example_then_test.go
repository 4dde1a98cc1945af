// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

type (
	shopCommand interface {
		eventsourcing.Target[shopCommand]
	}
	shopCtx    = eventsourcing.Context[shopCommand, ordered]
	shopEffect = eventsourcing.Effect[shopCommand, ordered]

	order struct { // is answered with the number of orders
		eventsourcing.For[shopCommand, int]
		Item string
	}
	ordered struct{ Item string }
	shop    struct {
		Orders int
		notify func(item string)
	}
)

func (s *shop) HandleCommand(ctx *shopCtx, cmd shopCommand) shopEffect {
	switch c := cmd.(type) {
	case order:
		return ctx.Persist(ordered{c.Item}).Then(func(ctx *shopCtx) shopEffect {
			s.notify(c.Item) // the order is stored
			return ctx.Reply(c.With(s.Orders))
		})
	}
	return ctx.Unhandled()
}

func (s *shop) ApplyEvent(ordered) { s.Orders++ }

// A side effect belongs into Then: it runs once the events are durable, and never
// again in a recovery.
func ExampleEffect_Then() {
	ctx := context.Background()
	rt, shops := hosted(eventsourcing.Type[shopCommand, ordered]{
		Name: "shop",
		New: func(string) eventsourcing.Aggregate[shopCommand, ordered] {
			return &shop{notify: func(item string) { fmt.Println("stored:", item) }}
		},
		Events: codec.Types(codec.Name[ordered]("ordered")),
	})
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	orders, err := eventsourcing.Ask(ctx, shops.Ref("main street"), order{Item: "tea"})
	fmt.Println(orders, err)
	// Output:
	// stored: tea
	// 1 <nil>
}
