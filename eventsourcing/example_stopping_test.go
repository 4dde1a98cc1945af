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
	// visit counts a visitor. The reply is the number of visitors.
	visit struct {
		eventsourcing.Command[pageviews, int]
	}
	visitorsCounted struct{ Visitors int }
	// pageviews counts visitors in memory. An event holds the number when the entity leaves memory.
	pageviews struct{ Visitors, stored int }

	pageviewsContext[R any] = eventsourcing.Context[pageviews, visitorsCounted, R]
)

func (p *pageviews) visit(ctx *pageviewsContext[int], _ visit) eventsourcing.Decision[pageviews, visitorsCounted, int] {
	if p.stored == 0 { // an entity without events does not stay in memory
		return ctx.Persist(visitorsCounted{1}).ReplyFunc(func() int { return p.Visitors })
	}
	p.Visitors++ // lost if the process crashes
	return ctx.Reply(p.Visitors)
}

func (p *pageviews) stopping(ctx *pageviewsContext[eventsourcing.None], s eventsourcing.Stopping) eventsourcing.Effect[pageviews, visitorsCounted, eventsourcing.None] {
	if p.Visitors == p.stored {
		return ctx.Effect
	}
	return ctx.Persist(visitorsCounted{p.Visitors})
}

func (p *pageviews) apply(e visitorsCounted) { p.Visitors, p.stored = e.Visitors, e.Visitors }

// The entity stores a number before it leaves memory: when it is idle, when its shard moves to another
// node, or when the runtime is closed.
func ExampleStopping() {
	typ := eventsourcing.Type[pageviews, visitorsCounted]{
		Name:     "pageviews",
		Commands: eventsourcing.Commands(eventsourcing.On("visit", (*pageviews).visit)),
		Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*pageviews).stopping)),
		Apply:    (*pageviews).apply,
		Events:   codec.Types(codec.Name[visitorsCounted]("visitors_counted")),
	}
	ctx := context.Background()
	rt, pages := hosted(typ)
	for range 1000 {
		if _, err := eventsourcing.Ask(ctx, pages.Ref("index"), visit{}); err != nil {
			fmt.Println(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		fmt.Println(err)
	}

	rt, pages = hostedOn(rt.Store(), typ)
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	visitors, err := eventsourcing.Ask(ctx, pages.Ref("index"), visit{})
	state, _ := eventsourcing.Fold(ctx, rt, typ, "index", eventsourcing.FoldOptions[visitorsCounted]{})
	fmt.Println(visitors, err, "events:", state.SequenceNr)
	// Output: 1001 <nil> events: 2
}
