// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest_test

import (
	"slices"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// A cart, with the mistakes that its type is told to make.
type (
	Command interface{ eventsourcing.Target[Command] }
	Event   interface{ isEvent() }
	Ctx     = eventsourcing.Context[Command, Event]
	Effect  = eventsourcing.Effect[Command, Event]

	// Add puts articles into the cart and is answered with their number.
	Add struct {
		eventsourcing.For[Command, int]
		Articles []string
	}
	// List is answered with all articles.
	List struct {
		eventsourcing.For[Command, []string]
	}
	// Checkout is answered with what was in the cart.
	Checkout struct {
		eventsourcing.For[Command, Receipt]
	}

	Added      struct{ Articles []string }
	CheckedOut struct{ Total int }

	Receipt struct {
		Articles map[string]int
		paid     []int // nobody else sees it
	}

	Cart struct {
		Articles []string
		Seen     map[string]int
		Looked   int
		Paid     []int
		mistakes mistakes `refold:"-"`
	}

	mistakes struct{ changesState, keepsCommand, sharesSlice, sharesMap, dropsEffect bool }
)

func (Added) isEvent()      {}
func (CheckedOut) isEvent() {}

var ErrEmpty = eventsourcing.NewRefusal("shop/empty", "the cart is empty")

func (c *Cart) HandleCommand(ctx *Ctx, cmd Command) Effect {
	switch q := cmd.(type) {
	case Add:
		articles := slices.Clone(q.Articles)
		if c.mistakes.keepsCommand {
			articles = q.Articles
		}
		return ctx.Persist(Added{articles}).Reply(q.Answer(func() int { return len(c.Articles) }))
	case List:
		if c.mistakes.changesState {
			c.Looked++
		}
		if c.mistakes.dropsEffect {
			ctx.Persist(CheckedOut{1})
		}
		if c.mistakes.sharesSlice {
			return ctx.Reply(q.With(c.Articles))
		}
		return ctx.Reply(q.With(slices.Clone(c.Articles)))
	case Checkout:
		if len(c.Articles) == 0 {
			return ctx.Refuse(ErrEmpty)
		}
		return ctx.Persist(CheckedOut{len(c.Articles)}).Reply(q.Answer(func() Receipt {
			r := Receipt{Articles: map[string]int{}, paid: c.Paid}
			if c.mistakes.sharesMap {
				r.Articles = c.Seen
			}
			return r
		}))
	}
	return ctx.Unhandled()
}

func (c *Cart) ApplyEvent(event Event) {
	switch e := event.(type) {
	case Added:
		if c.Articles == nil {
			c.Articles = e.Articles
		} else {
			c.Articles = append(c.Articles, e.Articles...)
		}
		for _, a := range e.Articles {
			if c.Seen == nil {
				c.Seen = make(map[string]int)
			}
			c.Seen[a]++
		}
	case CheckedOut:
		c.Articles = nil
		c.Paid = append(c.Paid, e.Total)
	}
}

func cartType(m mistakes) eventsourcing.Type[Command, Event] {
	return eventsourcing.Type[Command, Event]{
		Name:     "cart",
		New:      func(string) eventsourcing.Aggregate[Command, Event] { return &Cart{mistakes: m} },
		Events:   codec.Types(codec.Name[Added]("added"), codec.Name[CheckedOut]("checked_out")),
		Commands: codec.Types(codec.Name[Add]("add"), codec.Name[List]("list"), codec.Name[Checkout]("checkout")),
	}
}
