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
	Command interface{ eventsourcing.Target[Command] }
	Event   interface{ isEvent() }
	Ctx     = eventsourcing.Context[Command, Event]
	Effect  = eventsourcing.Effect[Command, Event]

	Deposit struct { // is answered with the balance
		eventsourcing.For[Command, int]
		Amount int
	}
	Deposited struct{ Amount int }
	Account   struct{ Balance int }
)

func (Deposited) isEvent() {}

func (a *Account) HandleCommand(ctx *Ctx, cmd Command) Effect {
	switch c := cmd.(type) {
	case Deposit:
		return ctx.Persist(Deposited{c.Amount}).Reply(c.Answer(func() int { return a.Balance }))
	}
	return ctx.Unhandled()
}

func (a *Account) ApplyEvent(event Event) {
	switch e := event.(type) {
	case Deposited:
		a.Balance += e.Amount
	}
}

// An account whose balance survives the runtime that it lived in.
func Example() {
	ctx := context.Background()
	accountType := eventsourcing.Type[Command, Event]{
		Name:   "account",
		New:    func(string) eventsourcing.Aggregate[Command, Event] { return &Account{} },
		Events: codec.Types(codec.Name[Deposited]("deposited")),
	}
	journal := inmem.NewJournal()
	for range 2 { // the second runtime refolds what the first one stored
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
		if err != nil {
			fmt.Println(err)
			return
		}
		accounts, err := eventsourcing.Host(rt, accountType, eventsourcing.HostOptions{})
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
