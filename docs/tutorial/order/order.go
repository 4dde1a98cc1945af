// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

// Package order is the aggregate of the tutorial: an order that collects units of products. Start
// reading at docs/tutorial/1-order/README.md.
package order

import (
	"github.com/refold-io/refold/codec"
	es "github.com/refold-io/refold/eventsourcing"
)

// endregion

// Order is the state of one order.
type Order struct {
	Units int
	Total int // in cents
}

// Add is a command to an Order. The reply is the new total in cents.
type Add struct {
	es.Command[Order, int]
	Product string
	Units   int
	Price   int // of one unit, in cents
}

// Event is an event of an Order.
type Event interface{ isOrderEvent() }

// Added is the event that units were added to an Order.
type Added struct {
	Product string
	Units   int
	Price   int
}

func (Added) isOrderEvent() {}

// region refusals

// MaxUnits is the size of an Order.
const MaxUnits = 100

// The reasons for which an Order refuses a command.
var (
	ErrNoUnits = es.NewRefusal("order/no_units", "a command adds at least one unit").OfKind(es.BadRequest)
	ErrFull    = es.NewRefusal("order/full", "an order has at most 100 units")
)

// endregion

// region names

type (
	// Context is the argument of a handler whose reply is an int.
	Context = es.Context[Order, Event, int]
	// Decision is the result of such a handler.
	Decision = es.Decision[Order, Event, int]
)

// endregion

// Add decides which event the command leads to. It changes nothing.
func (o *Order) Add(ctx *Context, c Add) Decision {
	switch {
	case c.Units < 1:
		return ctx.Refuse(ErrNoUnits)
	case o.Units+c.Units > MaxUnits:
		return ctx.Refuse(ErrFull)
	}
	return ctx.Persist(Added{Product: c.Product, Units: c.Units, Price: c.Price}).
		ReplyFunc(func() int { return o.Total })
}

// Apply changes the state by an event. It decides nothing.
func (o *Order) Apply(event Event) {
	switch e := event.(type) {
	case Added:
		o.Units += e.Units
		o.Total += e.Units * e.Price
	}
}

// Type describes the orders. The names "order", "add" and "added" are stored or sent, so they
// never change.
var Type = es.Type[Order, Event]{
	Name:     "order",
	Commands: es.Commands(es.On("add", (*Order).Add)),
	Apply:    (*Order).Apply,
	Events:   codec.Types(codec.Name[Added]("added")),
}
