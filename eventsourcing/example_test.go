// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

type (
	// Deposit is a command to an Account, answered with the balance.
	Deposit struct {
		eventsourcing.Command[Account, int]
		Amount int
	}
	Event     interface{ isEvent() }
	Deposited struct{ Amount int }
	Account   struct{ Balance int }

	Context[R any]  = eventsourcing.Context[Account, Event, R]
	Decision[R any] = eventsourcing.Decision[Account, Event, R]
)

func (Deposited) isEvent() {}

// Deposit decides which event follows from a deposit. It does not change the state.
func (a *Account) Deposit(ctx *Context[int], c Deposit) Decision[int] {
	return ctx.Persist(Deposited{c.Amount}).ReplyFunc(func() int { return a.Balance })
}

// Apply changes the state and does nothing else.
func (a *Account) Apply(event Event) {
	switch e := event.(type) {
	case Deposited:
		a.Balance += e.Amount
	}
}

// Shows that the balance is recovered by a second runtime.
func Example() {
	ctx := context.Background()
	accountType := eventsourcing.Type[Account, Event]{
		Name:     "account",
		Commands: eventsourcing.Commands(eventsourcing.On("deposit", (*Account).Deposit)),
		Apply:    (*Account).Apply,
		Events:   codec.Types(codec.Name[Deposited]("deposited")),
	}
	journal := inmem.NewJournal()
	for range 2 { // the second runtime recovers the events of the first one
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
		if err != nil {
			fmt.Println(err)
			return
		}
		accounts, err := eventsourcing.Host(rt, accountType)
		if err != nil {
			fmt.Println(err)
			return
		}
		balance, err := eventsourcing.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10})
		fmt.Println(balance, err)
		if err := rt.Close(ctx); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 10 <nil>
	// 20 <nil>
}
