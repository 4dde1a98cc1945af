// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

package main

import (
	"github.com/refold-io/refold/codec"
	es "github.com/refold-io/refold/eventsourcing"
)

// endregion

// Order is the state of one order in the second release.
type Order struct {
	Units    int
	Total    int    // in cents of the currency
	Currency string // that of the first unit
}

// Add is a command to an Order. The reply is the new total.
type Add struct {
	es.Command[Order, int]
	SKU      string
	Units    int
	Price    int
	Currency string
}

// Event is an event of an Order.
type Event interface{ isOrderEvent() }

// ItemAdded has another name, another name for the product, and a new field.
type ItemAdded struct {
	SKU      string
	Units    int
	Price    int
	Currency string
}

func (ItemAdded) isOrderEvent() {}

// region conversion

// addedV1 is how the first release stores the event.
type addedV1 struct {
	Product string
	Units   int
	Price   int
}

// fromV1 converts an event of the first release, when it is read. All its prices were in euros.
func fromV1(old addedV1) (ItemAdded, error) {
	return ItemAdded{SKU: old.Product, Units: old.Units, Price: old.Price, Currency: "EUR"}, nil
}

var events = codec.Types(
	codec.Name[ItemAdded]("item-added").Was("added").Version(2),
	codec.Upcast("item-added", 1, fromV1),
)

// endregion

var errCurrency = es.NewRefusal("order/currency", "all units of an order have the same currency")

// Add decides which event the command leads to.
func (o *Order) Add(ctx *es.Context[Order, Event, int], c Add) es.Decision[Order, Event, int] {
	if o.Currency != "" && o.Currency != c.Currency {
		return ctx.Refuse(errCurrency)
	}
	return ctx.Persist(ItemAdded{SKU: c.SKU, Units: c.Units, Price: c.Price, Currency: c.Currency}).
		ReplyFunc(func() int { return o.Total })
}

// Apply knows only the new form of the event.
func (o *Order) Apply(event Event) {
	switch e := event.(type) {
	case ItemAdded:
		o.Units += e.Units
		o.Total += e.Units * e.Price
		o.Currency = e.Currency
	}
}

var orderType = es.Type[Order, Event]{
	Name:     "order",
	Commands: es.Commands(es.On("add-item", (*Order).Add)),
	Apply:    (*Order).Apply,
	Events:   events,
}
