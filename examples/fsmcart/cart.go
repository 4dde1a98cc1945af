// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/eventsourcing/fsm"
)

// State is the state of a cart.
type State string

// The states of a cart.
const (
	LookingAround State = "looking_around"
	Shopping      State = "shopping"
	Inactive      State = "inactive"
	Paid          State = "paid"
)

type (
	// Event is a domain event of a cart.
	Event interface{ isEvent() }
	// ItemAdded puts an item into the cart.
	ItemAdded struct{ Item string }
	// OrderExecuted records that the customer has bought the items.
	OrderExecuted struct{}
	// OrderDiscarded records that the customer has left without buying.
	OrderDiscarded struct{}
	// CustomerInactive records that the customer has done nothing for a while.
	CustomerInactive struct{}

	// AddItem is answered with the number of items.
	AddItem struct {
		eventsourcing.Command[Cart, int]
		Item string
	}
	// Buy pays the items.
	Buy struct {
		eventsourcing.Command[Cart, eventsourcing.Ack]
	}
	// Leave discards the items.
	Leave struct {
		eventsourcing.Command[Cart, eventsourcing.Ack]
	}

	// Cart is a shopping cart.
	Cart struct {
		Position fsm.Position[State]
		Items    []string

		wait time.Duration `refold:"-"`
	}

	cartContext[R any] = fsm.Context[Cart, Event, State, R]
	transition[R any]  = fsm.Transition[Cart, Event, State, R]
)

func (ItemAdded) isEvent()        {}
func (OrderExecuted) isEvent()    {}
func (OrderDiscarded) isEvent()   {}
func (CustomerInactive) isEvent() {}

func (c *Cart) apply(event Event) {
	switch e := event.(type) {
	case ItemAdded:
		c.Items = append(c.Items, e.Item)
	case OrderDiscarded:
		c.Items = nil
	case OrderExecuted, CustomerInactive:
	}
}

func (c *Cart) add(ctx *cartContext[int], a AddItem) transition[int] {
	return ctx.Goto(Shopping).Applying(ItemAdded{a.Item}).ForMax(c.wait).ReplyFunc(func() int { return len(c.Items) })
}

func (c *Cart) buy(ctx *cartContext[eventsourcing.Ack], _ Buy) transition[eventsourcing.Ack] {
	return ctx.Goto(Paid).Applying(OrderExecuted{})
}

func (c *Cart) leave(ctx *cartContext[eventsourcing.Ack], _ Leave) transition[eventsourcing.Ack] {
	return ctx.Goto(LookingAround).Applying(OrderDiscarded{})
}

func (c *Cart) idle(ctx *cartContext[eventsourcing.None]) transition[eventsourcing.None] {
	return ctx.Goto(Inactive).Applying(CustomerInactive{}).ForMax(c.wait)
}

func (c *Cart) discard(ctx *cartContext[eventsourcing.None]) transition[eventsourcing.None] {
	return ctx.Goto(LookingAround).Applying(OrderDiscarded{})
}

// cartType returns the type of the carts. wait is how long a customer may be idle. moves receives the
// transitions.
func cartType(wait time.Duration, moves chan<- string) (eventsourcing.Type[Cart, any], error) {
	return fsm.Machine[Cart, Event, State]{
		Type: eventsourcing.Type[Cart, any]{Name: "cart", New: func(string) *Cart { return &Cart{wait: wait} }},
		Events: []codec.Entry{
			codec.Name[ItemAdded]("item_added"), codec.Name[OrderExecuted]("order_executed"),
			codec.Name[OrderDiscarded]("order_discarded"), codec.Name[CustomerInactive]("customer_inactive"),
		},
		Position: func(c *Cart) *fsm.Position[State] { return &c.Position },
		States:   []State{LookingAround, Shopping, Inactive, Paid},
		Apply:    (*Cart).apply,
		Handlers: []fsm.Handler[Cart, Event, State]{
			fsm.On("add_item", fsm.In((*Cart).add, LookingAround, Shopping, Inactive)),
			fsm.On("buy", fsm.In((*Cart).buy, Shopping)),
			fsm.On("leave", fsm.In((*Cart).leave, Shopping, Inactive)),
		},
		Timeouts: []fsm.Timeout[Cart, Event, State]{
			fsm.OnTimeout(Shopping, (*Cart).idle),
			fsm.OnTimeout(Inactive, (*Cart).discard),
		},
		OnTransition: func(_ *Cart, from, to State) { moves <- fmt.Sprintf("%s -> %s", from, to) },
	}.Build()
}
