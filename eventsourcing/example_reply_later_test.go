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
	// getPrice is answered with the price.
	getPrice struct {
		eventsourcing.Command[quote, int]
	}
	// fetched is a notice of the entity to itself.
	fetched struct {
		eventsourcing.Notice[quote]
		token eventsourcing.Token[int]
		price int
		err   error
	}
	priced struct{ Price int }
	quote  struct {
		Price int
		fetch func(context.Context) (int, error)
	}

	quoteContext[R any]  = eventsourcing.Context[quote, priced, R]
	quoteEffect[R any]   = eventsourcing.Effect[quote, priced, R]
	quoteDecision[R any] = eventsourcing.Decision[quote, priced, R]
)

func (q *quote) getPrice(ctx *quoteContext[int], _ getPrice) quoteDecision[int] {
	token := ctx.Token()
	return ctx.Go(func(ctx context.Context) eventsourcing.Message[quote] { // a handler must not block
		price, err := q.fetch(ctx)
		return fetched{token: token, price: price, err: err}
	}).ReplyLater()
}

func (q *quote) fetched(ctx *quoteContext[eventsourcing.None], n fetched) quoteEffect[eventsourcing.None] {
	if n.err != nil {
		return ctx.Resolve(n.token.Refuse(n.err))
	}
	return ctx.Persist(priced{n.price}).Resolve(n.token.With(n.price))
}

func (q *quote) apply(e priced) { q.Price = e.Price }

// Slow work runs on another goroutine, and a later notice answers the command. The entity handles
// other commands in between.
func ExampleEffect_ReplyLater() {
	ctx := context.Background()
	rt, quotes := hosted(eventsourcing.Type[quote, priced]{
		Name: "quote",
		New: func(string) *quote {
			fetch := func(context.Context) (int, error) { return 42, nil } // a slow service
			return &quote{fetch: fetch}
		},
		Commands: eventsourcing.Commands(
			eventsourcing.On("get_price", (*quote).getPrice),
			eventsourcing.OnNotice("", (*quote).fetched), // no wire name: it is not sent to other nodes
		),
		Apply:  (*quote).apply,
		Events: codec.Types(codec.Name[priced]("priced")),
	})
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	price, err := eventsourcing.Ask(ctx, quotes.Ref("tea"), getPrice{})
	fmt.Println(price, err)
	// Output: 42 <nil>
}
