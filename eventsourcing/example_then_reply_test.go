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
	// order is answered with the number of orders.
	order struct {
		eventsourcing.Command[shop, int]
		Item string
	}
	ordered struct{ Item string }
	shop    struct {
		Orders int
		notify func(item string)
	}

	shopContext  = eventsourcing.Context[shop, ordered, int]
	shopDecision = eventsourcing.Decision[shop, ordered, int]
)

func (s *shop) order(ctx *shopContext, c order) shopDecision {
	return ctx.Persist(ordered{c.Item}).ThenReply(func(ctx *shopContext) shopDecision {
		s.notify(c.Item) // the order is stored
		return ctx.Reply(s.Orders)
	})
}

func (s *shop) apply(ordered) { s.Orders++ }

// A side effect belongs into Then or ThenReply: it runs once the events are durable, and never
// again in a recovery.
func ExampleEffect_ThenReply() {
	ctx := context.Background()
	rt, shops := hosted(eventsourcing.Type[shop, ordered]{
		Name: "shop",
		New: func(string) *shop {
			return &shop{notify: func(item string) { fmt.Println("stored:", item) }}
		},
		Commands: eventsourcing.Commands(eventsourcing.On("order", (*shop).order)),
		Apply:    (*shop).apply,
		Events:   codec.Types(codec.Name[ordered]("ordered")),
	})
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	orders, err := eventsourcing.Ask(ctx, shops.Ref("main street"), order{Item: "tea"})
	fmt.Println(orders, err)
	// Output:
	// stored: tea
	// 1 <nil>
}
