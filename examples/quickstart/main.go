// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Quickstart is the smallest program with Refold: one kind of entity, one command, one event.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/refold-io/refold/codec"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
)

type (
	// Deposit is a command to an Account, answered with the balance.
	Deposit struct {
		es.Command[Account, int]
		Amount int
	}
	Event     interface{ isEvent() }
	Deposited struct{ Amount int }
	Account   struct{ Balance int }

	Context[R any]  = es.Context[Account, Event, R]
	Decision[R any] = es.Decision[Account, Event, R]
)

func (Deposited) isEvent() {}

// Deposit decides which event a deposit leads to. It changes nothing.
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

var AccountType = es.Type[Account, Event]{
	Name:     "account",
	Commands: es.Commands(es.On("deposit", (*Account).Deposit)),
	Apply:    (*Account).Apply,
	Events:   codec.Types(codec.Name[Deposited]("deposited")),
}

func run(ctx context.Context) error {
	db, err := inmem.Open() // on disk: leveldb.Open("bank-data", leveldb.Config{})
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
	balance, err := es.Ask(ctx, accounts.Ref("42"), Deposit{Amount: 10}) // an int
	fmt.Println(balance, err)
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
