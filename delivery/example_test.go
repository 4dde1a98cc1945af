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
	WalletEvent           interface{ isWalletEvent() }
	WalletContext[R any]  = eventsourcing.Context[Wallet, WalletEvent, R]
	WalletDecision[R any] = eventsourcing.Decision[Wallet, WalletEvent, R]
	WalletSignal          = eventsourcing.Context[Wallet, WalletEvent, eventsourcing.None]
	WalletEffect          = eventsourcing.Effect[Wallet, WalletEvent, eventsourcing.None]

	// Pay is answered with the coins that are left.
	Pay struct {
		eventsourcing.Command[Wallet, int]
		To     string
		Amount int
	}
	// Receive is delivered.
	Receive struct {
		eventsourcing.Command[Wallet, eventsourcing.Ack]
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

func (w *Wallet) pay(ctx *WalletContext[int], c Pay) WalletDecision[int] {
	return ctx.Persist(Paid{To: c.To, Amount: c.Amount}).ReplyFunc(func() int { return w.Coins })
}

// receive is called once for each delivery: delivery.On answers repetitions.
func (w *Wallet) receive(ctx *WalletContext[eventsourcing.Ack], c Receive) WalletDecision[eventsourcing.Ack] {
	return ctx.Persist(Received{Delivery: c.Header, Amount: c.Amount}).Reply(eventsourcing.Ack{})
}

// answered ends a delivery.
func (w *Wallet) answered(ctx *WalletSignal, s delivery.Answered[Receive, eventsourcing.Ack]) WalletEffect {
	return ctx.Persist(Arrived{Nr: s.Nr}).Then(func(ctx *WalletSignal) WalletEffect {
		w.arrived <- fmt.Sprintf("payment %d of %d has arrived at %v", s.Nr, s.Message.Amount, s.To)
		return ctx.Effect
	})
}

func (w *Wallet) apply(event WalletEvent) {
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

func (w *Wallet) payments() *delivery.Outbox[Receive] { return &w.Payments }

func (w *Wallet) receipts() *delivery.Inbox { return &w.Receipts }

// One wallet pays another. The payment arrives exactly once, even if one of them crashes.
func Example() {
	ctx := context.Background()
	arrived := make(chan string, 10)
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	wallets, err := eventsourcing.Host(rt, eventsourcing.Type[Wallet, WalletEvent]{
		Name: "wallet",
		New:  func(string) *Wallet { return &Wallet{Coins: 100, arrived: arrived} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("pay", (*Wallet).pay),
			delivery.On("receive", (*Wallet).receipts, (*Wallet).receive),
		),
		Parts:  eventsourcing.Parts(delivery.Sends("Payments", (*Wallet).payments, (*Wallet).answered)),
		Apply:  (*Wallet).apply,
		Events: codec.Types(codec.Name[Paid]("paid"), codec.Name[Arrived]("arrived"), codec.Name[Received]("received")),
	})
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

// The same delivery arrives twice. The inbox records the first arrival, so the second one counts as
// seen. A delivery below the floor also counts as seen, because its sender has confirmed it.
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
