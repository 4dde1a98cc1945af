// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

type (
	WalletCommand interface {
		eventsourcing.Target[WalletCommand]
	}
	WalletEvent   interface{ isWalletEvent() }
	WalletContext = eventsourcing.Context[WalletCommand, WalletEvent]
	WalletEffect  = eventsourcing.Effect[WalletCommand, WalletEvent]

	Pay struct { // is answered with what is left
		eventsourcing.For[WalletCommand, int]
		To     string
		Amount int
	}
	Receive struct { // is delivered
		eventsourcing.For[WalletCommand, bool]
		delivery.Header
		Amount int
	}

	Paid struct {
		To     string
		Amount int
	}
	Arrived  struct{ Nr uint64 }
	Received struct {
		Delivery delivery.Header
		Amount   int
	}

	Wallet struct {
		Coins    int
		Payments delivery.Outbox[Receive]
		Receipts delivery.Inbox

		arrived chan<- string `refold:"-"`
	}
)

func (Paid) isWalletEvent()     {}
func (Arrived) isWalletEvent()  {}
func (Received) isWalletEvent() {}

func (w *Wallet) HandleCommand(ctx *WalletContext, cmd WalletCommand) WalletEffect {
	switch c := cmd.(type) {
	case Pay:
		return ctx.Persist(Paid{To: c.To, Amount: c.Amount}).Reply(c.Answer(func() int { return w.Coins }))
	case Receive:
		if w.Receipts.Seen(c.Header) {
			return ctx.Reply(c.With(true))
		}
		return ctx.Persist(Received{Delivery: c.Header, Amount: c.Amount}).Reply(c.With(true))
	}
	return ctx.Unhandled()
}

func (w *Wallet) HandleSignal(ctx *WalletContext, signal eventsourcing.Signal) WalletEffect {
	switch s := signal.(type) {
	case delivery.Answered[Receive]:
		return ctx.Persist(Arrived{Nr: s.Nr}).Then(func(ctx *WalletContext) WalletEffect {
			w.arrived <- fmt.Sprintf("payment %d of %d has arrived at %v", s.Nr, s.Message.Amount, s.To)
			return ctx.None()
		})
	}
	return ctx.None()
}

func (w *Wallet) ApplyEvent(event WalletEvent) {
	switch e := event.(type) {
	case Paid:
		w.Coins -= e.Amount
		w.Payments.Deliver(eventsourcing.Address{Type: "wallet", ID: e.To}, Receive{Amount: e.Amount})
	case Arrived:
		w.Payments.Confirm(e.Nr)
	case Received:
		w.Coins += e.Amount
		w.Receipts.Record(e.Delivery)
	}
}

// A wallet pays another one. Whatever crashes when, the payment arrives once.
func Example() {
	ctx := context.Background()
	arrived := make(chan string, 10)
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	wallets, err := eventsourcing.Host(rt, eventsourcing.Type[WalletCommand, WalletEvent]{
		Name: "wallet",
		New: func(string) eventsourcing.Aggregate[WalletCommand, WalletEvent] {
			return &Wallet{Coins: 100, arrived: arrived}
		},
		Events: codec.Types(codec.Name[Paid]("paid"), codec.Name[Arrived]("arrived"), codec.Name[Received]("received")),
	}, eventsourcing.HostOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	left, err := eventsourcing.Ask(ctx, wallets.Ref("alice"), Pay{To: "bob", Amount: 30})
	fmt.Println("alice has", left, err)
	fmt.Println(<-arrived)
	left, err = eventsourcing.Ask(ctx, wallets.Ref("bob"), Pay{To: "alice", Amount: 5})
	fmt.Println("bob has", left, err)
	fmt.Println(<-arrived)
	if err := rt.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// alice has 70 <nil>
	// payment 1 of 30 has arrived at wallet|bob
	// bob has 125 <nil>
	// payment 1 of 5 has arrived at wallet|alice
}

// The same delivery comes twice; the second time it is known, and so it is when
// the sender waits for it no more.
func ExampleInbox() {
	var inbox delivery.Inbox // a field of an aggregate
	first := delivery.Header{Sender: "wallet|alice#Payments", Nr: 1, Floor: 1}
	fmt.Println(inbox.Seen(first))
	inbox.Record(first)
	fmt.Println(inbox.Seen(first))

	inbox.Record(delivery.Header{Sender: "wallet|alice#Payments", Nr: 5, Floor: 4})
	fmt.Println(inbox.Seen(first), inbox.Seen(delivery.Header{Sender: "wallet|alice#Payments", Nr: 4, Floor: 4}))
	// Output:
	// false
	// true
	// true false
}
