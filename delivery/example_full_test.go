// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// The command that would exceed the limit is refused, and nothing is stored.
func ExampleOptions_maxUnconfirmed() {
	ctx := context.Background()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	limited := delivery.Options{MaxUnconfirmed: 1}
	wallets, err := eventsourcing.Host(rt, eventsourcing.Type[Wallet, WalletEvent]{
		Name:     "wallet",
		New:      func(string) *Wallet { return &Wallet{Coins: 100} },
		Commands: eventsourcing.Commands(eventsourcing.On("pay", (*Wallet).pay)), // no wallet receives
		Parts:    eventsourcing.Parts(delivery.SendsWith("Payments", (*Wallet).payments, limited, (*Wallet).answered)),
		Apply:    (*Wallet).apply,
		Events:   codec.Types(codec.Name[Paid]("paid"), codec.Name[Arrived]("arrived"), codec.Name[Received]("received")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		coins, asked := eventsourcing.Ask(ctx, wallets.Ref("alice"), Pay{To: "bob", Amount: 10})
		fmt.Println(coins, errors.Is(asked, delivery.ErrFull), eventsourcing.NotDone(asked))
	}
	folded, err := eventsourcing.Fold(ctx, rt, eventsourcing.Type[Wallet, WalletEvent]{
		Name:   "wallet",
		New:    func(string) *Wallet { return &Wallet{Coins: 100} },
		Parts:  eventsourcing.Parts(delivery.Sends("Payments", (*Wallet).payments, (*Wallet).answered)),
		Apply:  (*Wallet).apply,
		Events: codec.Types(codec.Name[Paid]("paid"), codec.Name[Arrived]("arrived"), codec.Name[Received]("received")),
	}, "alice", eventsourcing.FoldOptions[WalletEvent]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(folded.State.Coins, "coins are left")
	// Output:
	// 90 false false
	// 0 true true
	// 90 coins are left
}
