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
	quoteCommand interface {
		eventsourcing.Target[quoteCommand]
	}
	quoteCtx    = eventsourcing.Context[quoteCommand, priced]
	quoteEffect = eventsourcing.Effect[quoteCommand, priced]

	getPrice struct { // is answered with the price
		eventsourcing.For[quoteCommand, int]
	}
	fetched struct { // the entity sends it to itself
		eventsourcing.For[quoteCommand, struct{}]
		asked getPrice
		token eventsourcing.Token[quoteCommand]
		price int
		err   error
	}
	priced struct{ Price int }
	quote  struct {
		Price int
		fetch func(context.Context) (int, error)
	}
)

func (q *quote) HandleCommand(ctx *quoteCtx, cmd quoteCommand) quoteEffect {
	switch c := cmd.(type) {
	case getPrice:
		token := ctx.Token()
		ctx.Go(func(ctx context.Context) quoteCommand { // a handler must not block
			price, err := q.fetch(ctx)
			return fetched{asked: c, token: token, price: price, err: err}
		})
		return ctx.None().ReplyLater()
	case fetched:
		if c.err != nil {
			return ctx.None().ResolveError(c.token, c.err)
		}
		return ctx.Persist(priced{c.price}).Resolve(c.token, c.asked.With(c.price))
	}
	return ctx.Unhandled()
}

func (q *quote) ApplyEvent(e priced) { q.Price = e.Price }

// What takes time runs beside the entity, and a later command answers the first
// one. Other commands are handled meanwhile.
func ExampleEffect_ReplyLater() {
	ctx := context.Background()
	rt, quotes := hosted(eventsourcing.Type[quoteCommand, priced]{
		Name: "quote",
		New: func(string) eventsourcing.Aggregate[quoteCommand, priced] {
			fetch := func(context.Context) (int, error) { return 42, nil } // a slow service
			return &quote{fetch: fetch}
		},
		Events: codec.Types(codec.Name[priced]("priced")),
	})
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight

	price, err := eventsourcing.Ask(ctx, quotes.Ref("tea"), getPrice{})
	fmt.Println(price, err)
	// Output: 42 <nil>
}
