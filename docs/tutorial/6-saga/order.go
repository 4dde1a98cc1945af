// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// region head

package main

import (
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	es "github.com/refold-io/refold/eventsourcing"
)

// endregion

// Outcome is the end of an order.
type Outcome string

// region outcomes

// The outcomes of an order.
const (
	Completed  Outcome = "completed"    // the units are reserved and paid
	OutOfStock Outcome = "out of stock" // nothing is reserved or paid
	NotPaid    Outcome = "not paid"     // the reserved units were released
)

// endregion

// region commands

// Place starts an order. The customer may repeat the command.
type Place struct {
	es.Command[Order, es.Ack]
	Customer, Product string
	Units, Price      int // Price is that of all units
}

// Await is answered when the order has ended.
type Await struct{ es.Command[Order, Outcome] }

// endregion

// region events

// Event is an event of an Order.
type Event interface{ isOrderEvent() }

// The events of an Order. All except Placed record the answer to a delivery.
type (
	Placed struct {
		Customer, Product string
		Units, Price      int
	}
	Reserved struct {
		Nr      uint64
		Refused bool
	}
	Charged struct {
		Nr      uint64
		Refused bool
	}
	Released struct{ Nr uint64 }
)

func (Placed) isOrderEvent()   {}
func (Reserved) isOrderEvent() {}
func (Charged) isOrderEvent()  {}
func (Released) isOrderEvent() {}

// endregion

// Order is the saga: it reserves units, then charges the customer. If the customer can't pay, it
// releases the units.
type Order struct {
	Placed  Placed
	Reserve delivery.Outbox[Reserve]
	Charge  delivery.Outbox[Charge]
	Release delivery.Outbox[Release]
	Outcome Outcome // empty until the order has ended
}

// region handlers

type (
	orderContext[R any]  = es.Context[Order, Event, R]
	orderDecision[R any] = es.Decision[Order, Event, R]
	orderEffect          = es.Effect[Order, Event, es.None]
)

func (o *Order) place(ctx *orderContext[es.Ack], c Place) orderDecision[es.Ack] {
	if o.Placed != (Placed{}) { // a repetition
		return ctx.Reply(es.Ack{})
	}
	return ctx.Persist(Placed{c.Customer, c.Product, c.Units, c.Price}).Reply(es.Ack{})
}

func (o *Order) await(ctx *orderContext[Outcome], _ Await) orderDecision[Outcome] {
	if o.Outcome == "" {
		return ctx.Stash() // until UnstashAll
	}
	return ctx.Reply(o.Outcome)
}

// endregion

// region answers

func (o *Order) reserved(ctx *orderContext[es.None], a delivery.Answered[Reserve, es.Ack]) orderEffect {
	return ctx.Persist(Reserved{Nr: a.Nr, Refused: a.Err != nil}).UnstashAll()
}

func (o *Order) charged(ctx *orderContext[es.None], a delivery.Answered[Charge, es.Ack]) orderEffect {
	return ctx.Persist(Charged{Nr: a.Nr, Refused: a.Err != nil}).UnstashAll()
}

func (o *Order) released(ctx *orderContext[es.None], a delivery.Answered[Release, es.Ack]) orderEffect {
	return ctx.Persist(Released{Nr: a.Nr}).UnstashAll()
}

// endregion

// apply contains the whole process: each event leads to the next delivery or to the end.
func (o *Order) apply(event Event) {
	switch e := event.(type) {
	case Placed:
		o.Placed = e
		o.Reserve.Deliver(es.Address{Type: "stock", ID: e.Product}, Reserve{Units: e.Units})
	case Reserved:
		o.Reserve.Confirm(e.Nr)
		if e.Refused {
			o.Outcome = OutOfStock
			return
		}
		o.Charge.Deliver(es.Address{Type: "wallet", ID: o.Placed.Customer}, Charge{Amount: o.Placed.Price})
	case Charged:
		o.Charge.Confirm(e.Nr)
		if e.Refused {
			o.Release.Deliver(es.Address{Type: "stock", ID: o.Placed.Product}, Release{Units: o.Placed.Units}) // the compensation
			return
		}
		o.Outcome = Completed
	case Released:
		o.Release.Confirm(e.Nr)
		o.Outcome = NotPaid
	}
}

var orderType = es.Type[Order, Event]{
	Name:     "order",
	Commands: es.Commands(es.On("place", (*Order).place), es.On("await", (*Order).await)),
	Parts: es.Parts(
		delivery.Sends("Reserve", func(o *Order) *delivery.Outbox[Reserve] { return &o.Reserve }, (*Order).reserved),
		delivery.Sends("Charge", func(o *Order) *delivery.Outbox[Charge] { return &o.Charge }, (*Order).charged),
		delivery.Sends("Release", func(o *Order) *delivery.Outbox[Release] { return &o.Release }, (*Order).released),
	),
	Apply: (*Order).apply,
	Events: codec.Types(
		codec.Name[Placed]("placed"), codec.Name[Reserved]("reserved"),
		codec.Name[Charged]("charged"), codec.Name[Released]("released"),
	),
}
