// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcingtest_test

import (
	"slices"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// cart is a cart with mistakes that tests switch on.
type (
	Event           interface{ isEvent() }
	Context[R any]  = eventsourcing.Context[Cart, Event, R]
	Decision[R any] = eventsourcing.Decision[Cart, Event, R]

	// Add puts articles into the cart and is answered with their number.
	Add struct {
		eventsourcing.Command[Cart, int]
		Articles []string
	}
	// List is answered with all articles.
	List struct {
		eventsourcing.Command[Cart, []string]
	}
	// Checkout is answered with the content of the cart.
	Checkout struct {
		eventsourcing.Command[Cart, Receipt]
	}

	Added      struct{ Articles []string }
	CheckedOut struct{ Total int }

	Receipt struct {
		Articles map[string]int
		paid     []int // not accessible to other packages, and not sent to other nodes
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

func (c *Cart) add(ctx *Context[int], q Add) Decision[int] {
	articles := slices.Clone(q.Articles)
	if c.mistakes.keepsCommand {
		articles = q.Articles
	}
	return ctx.Persist(Added{articles}).ReplyFunc(func() int { return len(c.Articles) })
}

func (c *Cart) list(ctx *Context[[]string], _ List) Decision[[]string] {
	if c.mistakes.changesState {
		c.Looked++
	}
	if c.mistakes.dropsEffect {
		ctx.Persist(CheckedOut{1})
	}
	if c.mistakes.sharesSlice {
		return ctx.Reply(c.Articles)
	}
	return ctx.Reply(slices.Clone(c.Articles))
}

func (c *Cart) checkout(ctx *Context[Receipt], _ Checkout) Decision[Receipt] {
	if len(c.Articles) == 0 {
		return ctx.Refuse(ErrEmpty)
	}
	return ctx.Persist(CheckedOut{len(c.Articles)}).ReplyFunc(func() Receipt {
		r := Receipt{Articles: map[string]int{}, paid: c.Paid}
		if c.mistakes.sharesMap {
			r.Articles = c.Seen
		}
		return r
	})
}

func (c *Cart) apply(event Event) {
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

func cartType(m mistakes) eventsourcing.Type[Cart, Event] {
	return eventsourcing.Type[Cart, Event]{
		Name: "cart",
		New:  func(string) *Cart { return &Cart{mistakes: m} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("add", (*Cart).add), eventsourcing.On("list", (*Cart).list), eventsourcing.On("", (*Cart).checkout),
		),
		Apply:  (*Cart).apply,
		Events: codec.Types(codec.Name[Added]("added"), codec.Name[CheckedOut]("checked_out")),
	}
}
