// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	es "github.com/refold-io/refold/eventsourcing"
)

// patience is the time that an order waits for both holds.
const patience = 15 * time.Minute

// Outcome is the final state of an order.
type Outcome string

// The outcomes of an order.
const (
	Completed Outcome = "completed" // the money and the units are taken
	Cancelled Outcome = "cancelled" // neither is taken
)

type (
	// Place starts an order. The program of the customer chooses the ID of the order and may repeat
	// the command.
	Place struct {
		es.Command[Order, es.Ack]
		Customer, Product string
		Price, Quantity   int // Price is the price of all units
	}
	// Await is answered when the order has ended.
	Await struct{ es.Command[Order, Outcome] }

	OrderEvent interface{ isOrderEvent() }
	Placed     struct {
		Customer, Product string
		Price, Quantity   int
		Until             time.Time
	}
	// Answered is the answer of the wallet or of the stock to a request.
	Answered struct {
		Wallet  bool // or the stock
		Nr      uint64
		Refused bool
	}
	TimedOut struct{}

	// Order is a process manager with two partners: the wallet of the customer and the stock of the
	// product. It requests a hold from both. If both hold in time, it takes both holds; otherwise it
	// releases the one that exists.
	Order struct {
		Placed   Placed
		Wallet   delivery.Outbox[MoneyRequest]
		Stock    delivery.Outbox[UnitsRequest]
		Money    bool // the wallet holds the money
		Units    bool // the stock holds the units
		Late     bool
		Decision Outcome // empty until both partners have answered
	}

	orderContext[R any]  = es.Context[Order, OrderEvent, R]
	orderDecision[R any] = es.Decision[Order, OrderEvent, R]
	orderEffect          = es.Effect[Order, OrderEvent, es.None]
)

func (Placed) isOrderEvent()   {}
func (Answered) isOrderEvent() {}
func (TimedOut) isOrderEvent() {}

var errInvalid = es.NewRefusal("order/invalid", "price and quantity must be at least 1, customer and product must not be empty")

func (o *Order) place(ctx *orderContext[es.Ack], c Place) orderDecision[es.Ack] {
	switch {
	case !o.Placed.Until.IsZero(): // a repetition
		return ctx.Reply(es.Ack{})
	case c.Price < 1 || c.Quantity < 1 || c.Customer == "" || c.Product == "":
		return ctx.Refuse(errInvalid)
	}
	return ctx.Persist(Placed{c.Customer, c.Product, c.Price, c.Quantity, ctx.Now().Add(patience)}).Reply(es.Ack{})
}

func (o *Order) await(ctx *orderContext[Outcome], _ Await) orderDecision[Outcome] {
	if !o.ended() {
		return ctx.Stash()
	}
	return ctx.Reply(o.Decision)
}

func (*Order) walletAnswered(ctx *orderContext[es.None], a delivery.Answered[MoneyRequest, es.Ack]) orderEffect {
	return ctx.Persist(Answered{Wallet: true, Nr: a.Nr, Refused: a.Err != nil}).UnstashAll()
}

func (*Order) stockAnswered(ctx *orderContext[es.None], a delivery.Answered[UnitsRequest, es.Ack]) orderEffect {
	return ctx.Persist(Answered{Nr: a.Nr, Refused: a.Err != nil}).UnstashAll()
}

func (*Order) timedOut(ctx *orderContext[es.None], _ es.StateTimeout) orderEffect {
	return ctx.Persist(TimedOut{})
}

// deadline is the time-out of the holds. After the decision nothing can time out any more.
func (o *Order) deadline() time.Time {
	if o.Decision != "" || o.Late {
		return time.Time{}
	}
	return o.Placed.Until
}

func (o *Order) apply(event OrderEvent) {
	switch e := event.(type) {
	case Placed:
		o.Placed = e
		o.send(hold, true, true)
	case Answered:
		if e.Wallet {
			o.Wallet.Confirm(e.Nr)
			o.Money = !e.Refused
		} else {
			o.Stock.Confirm(e.Nr)
			o.Units = !e.Refused
		}
		o.proceed()
	case TimedOut:
		o.Late = true // a hold that is still requested may exist, so its answer decides
	}
}

// proceed decides when both partners have answered, and delivers the next step. It decides once.
func (o *Order) proceed() {
	switch {
	case o.Decision != "" || o.unanswered() > 0:
	case o.Money && o.Units && !o.Late:
		o.Decision = Completed
		o.send(take, true, true)
	default:
		o.Decision = Cancelled
		o.send(release, o.Money, o.Units) // the compensation
	}
}

// ended reports whether the order is in a final state.
func (o *Order) ended() bool { return o.Decision != "" && o.unanswered() == 0 }

func (o *Order) unanswered() int { return o.Wallet.Unconfirmed() + o.Stock.Unconfirmed() }

func (o *Order) send(a action, toWallet, toStock bool) {
	if toWallet {
		o.Wallet.Deliver(es.Address{Type: "wallet", ID: o.Placed.Customer}, MoneyRequest{Do: a, Amount: o.Placed.Price, Until: o.Placed.Until})
	}
	if toStock {
		o.Stock.Deliver(es.Address{Type: "stock", ID: o.Placed.Product}, UnitsRequest{Do: a, Amount: o.Placed.Quantity, Until: o.Placed.Until})
	}
}

func (o *Order) wallet() *delivery.Outbox[MoneyRequest] { return &o.Wallet }

func (o *Order) stock() *delivery.Outbox[UnitsRequest] { return &o.Stock }

var OrderType = es.Type[Order, OrderEvent]{
	Name:     "order",
	Commands: es.Commands(es.On("place", (*Order).place), es.On("await", (*Order).await)),
	Parts: es.Parts(
		delivery.Sends("Wallet", (*Order).wallet, (*Order).walletAnswered),
		delivery.Sends("Stock", (*Order).stock, (*Order).stockAnswered),
	),
	Signals:  es.Signals(es.OnSignal((*Order).timedOut)),
	Deadline: (*Order).deadline,
	Apply:    (*Order).apply,
	Events:   codec.Types(codec.Name[Placed]("placed"), codec.Name[Answered]("answered"), codec.Name[TimedOut]("timed_out")),
}
