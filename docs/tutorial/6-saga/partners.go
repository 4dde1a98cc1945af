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

// region commands

// Reserve and Release are delivered to the stock of a product.
type (
	Reserve struct {
		es.Command[Stock, es.Ack]
		delivery.Header
		Units int
	}
	Release struct {
		es.Command[Stock, es.Ack]
		delivery.Header
		Units int
	}
)

// endregion

// region events

// StockEvent is an event of a Stock.
type StockEvent interface{ isStockEvent() }

// The events of a Stock contain the header of the delivery that they decide on.
type (
	UnitsReserved struct {
		Delivery delivery.Header
		Units    int
	}
	UnitsRefused  struct{ Delivery delivery.Header }
	UnitsReleased struct {
		Delivery delivery.Header
		Units    int
	}
)

func (UnitsReserved) isStockEvent() {}
func (UnitsRefused) isStockEvent()  {}
func (UnitsReleased) isStockEvent() {}

// endregion

// region stock

// Stock is the stock of a product. In this example it starts with three units.
type Stock struct {
	Units  int
	Orders delivery.Inbox
}

type (
	stockContext  = es.Context[Stock, StockEvent, es.Ack]
	stockDecision = es.Decision[Stock, StockEvent, es.Ack]
)

// endregion

// region handlers

var errOutOfStock = es.NewRefusal("stock/out", "the units are not in stock")

func (s *Stock) reserve(ctx *stockContext, c Reserve) stockDecision {
	if c.Units > s.Units {
		return ctx.Persist(UnitsRefused{c.Header}).Refuse(errOutOfStock)
	}
	return ctx.Persist(UnitsReserved{c.Header, c.Units}).Reply(es.Ack{})
}

// release is never refused. A compensation must not fail.
func (s *Stock) release(ctx *stockContext, c Release) stockDecision {
	return ctx.Persist(UnitsReleased{c.Header, c.Units}).Reply(es.Ack{})
}

// endregion

func (s *Stock) apply(event StockEvent) {
	switch e := event.(type) {
	case UnitsReserved:
		s.Units -= e.Units
		s.Orders.Record(e.Delivery)
	case UnitsRefused:
		s.Orders.RecordRefusal(e.Delivery, errOutOfStock)
	case UnitsReleased:
		s.Units += e.Units
		s.Orders.Record(e.Delivery)
	}
}

// region type

func (s *Stock) orders() *delivery.Inbox { return &s.Orders }

var stockType = es.Type[Stock, StockEvent]{
	Name: "stock",
	New:  func(string) *Stock { return &Stock{Units: 3} },
	Commands: es.Commands(
		delivery.On("reserve", (*Stock).orders, (*Stock).reserve),
		delivery.On("release", (*Stock).orders, (*Stock).release),
	),
	Apply: (*Stock).apply,
	Events: codec.Types(
		codec.Name[UnitsReserved]("reserved"), codec.Name[UnitsRefused]("refused"), codec.Name[UnitsReleased]("released"),
	),
}

// endregion

// region wallet

// Charge is delivered to the wallet of a customer.
type Charge struct {
	es.Command[Wallet, es.Ack]
	delivery.Header
	Amount int
}

// WalletEvent is an event of a Wallet.
type WalletEvent interface{ isWalletEvent() }

// The events of a Wallet contain the header of the delivery that they decide on.
type (
	AmountCharged struct {
		Delivery delivery.Header
		Amount   int
	}
	AmountRefused struct{ Delivery delivery.Header }
)

func (AmountCharged) isWalletEvent() {}
func (AmountRefused) isWalletEvent() {}

// Wallet pays for the orders of a customer. In this example it starts with 100 euros.
type Wallet struct {
	Euros  int
	Orders delivery.Inbox
}

type (
	walletContext  = es.Context[Wallet, WalletEvent, es.Ack]
	walletDecision = es.Decision[Wallet, WalletEvent, es.Ack]
)

var errNotEnough = es.NewRefusal("wallet/not_enough", "the amount is not available")

func (w *Wallet) charge(ctx *walletContext, c Charge) walletDecision {
	if c.Amount > w.Euros {
		return ctx.Persist(AmountRefused{c.Header}).Refuse(errNotEnough)
	}
	return ctx.Persist(AmountCharged{c.Header, c.Amount}).Reply(es.Ack{})
}

func (w *Wallet) apply(event WalletEvent) {
	switch e := event.(type) {
	case AmountCharged:
		w.Euros -= e.Amount
		w.Orders.Record(e.Delivery)
	case AmountRefused:
		w.Orders.RecordRefusal(e.Delivery, errNotEnough)
	}
}

func (w *Wallet) orders() *delivery.Inbox { return &w.Orders }

var walletType = es.Type[Wallet, WalletEvent]{
	Name:     "wallet",
	New:      func(string) *Wallet { return &Wallet{Euros: 100} },
	Commands: es.Commands(delivery.On("charge", (*Wallet).orders, (*Wallet).charge)),
	Apply:    (*Wallet).apply,
	Events:   codec.Types(codec.Name[AmountCharged]("charged"), codec.Name[AmountRefused]("refused")),
}

// endregion
