// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Quickstart is the program of the README.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/refold-io/refold/codec"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/leveldb"
)

// Deposit is a command to an Account. The reply is the balance, an int.
type Deposit struct {
	es.Command[Account, int]
	Amount int
}

// Deposited is an event. It is stored.
type Deposited struct{ Amount int }

// Account is the state. It is the result of all events.
type Account struct{ Balance int }

// Deposit decides. It changes nothing.
func (a *Account) Deposit(ctx *es.Context[Account, Deposited, int], c Deposit) es.Decision[Account, Deposited, int] {
	if c.Amount <= 0 {
		return ctx.Refuse(es.NewRefusal("account/amount", "the amount must be positive"))
	}
	return ctx.Persist(Deposited{c.Amount}).ReplyFunc(func() int { return a.Balance })
}

// Apply changes the state: after the event is stored, and again in each recovery.
func (a *Account) Apply(e Deposited) { a.Balance += e.Amount }

var AccountType = es.Type[Account, Deposited]{
	Name:     "account",
	Commands: es.Commands(es.On("deposit", (*Account).Deposit)),
	Apply:    (*Account).Apply,
	Events:   codec.Types(codec.Name[Deposited]("deposited")),
}

func run(ctx context.Context) error {
	db, err := leveldb.Open("hello-data", leveldb.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	rt, err := es.Open(es.Config{Store: db})
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	accounts, err := es.Host(rt, AccountType)
	if err != nil {
		return err
	}
	for _, amount := range []int{10, 5, -1} {
		balance, err := es.Ask(ctx, accounts.Ref("42"), Deposit{Amount: amount})
		fmt.Println("balance:", balance, "error:", err)
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
