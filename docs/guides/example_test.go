// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/refold-io/refold/codec"
	es "github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
)

type (
	// Withdraw is repeated by a caller that received no reply, with the same Request.
	Withdraw struct {
		es.Command[Account, int]
		Request string // chosen by the caller
		Amount  int
	}
	Withdrawn struct {
		Request string
		Amount  int
	}
	Account struct {
		Balance int
		Replies map[string]int // of the requests
		Order   []string       // the requests, the oldest first
	}
)

// remembered is the number of requests whose replies an account keeps.
const remembered = 1000

var errTooMuch = es.NewRefusal("account/too_much", "the balance is too low")

func (a *Account) Withdraw(ctx *es.Context[Account, Withdrawn, int], c Withdraw) es.Decision[Account, Withdrawn, int] {
	if reply, seen := a.Replies[c.Request]; seen {
		return ctx.Reply(reply)
	}
	if c.Amount > a.Balance {
		return ctx.Refuse(errTooMuch)
	}
	return ctx.Persist(Withdrawn{c.Request, c.Amount}).ReplyFunc(func() int { return a.Balance })
}

func (a *Account) Apply(e Withdrawn) {
	a.Balance -= e.Amount
	if a.Replies == nil {
		a.Replies = map[string]int{}
	}
	a.Replies[e.Request] = a.Balance
	a.Order = append(a.Order, e.Request)
	if len(a.Order) > remembered {
		delete(a.Replies, a.Order[0])
		a.Order = a.Order[1:]
	}
}

// The caller repeats a request. The account recognizes it and returns the first reply.
func Example_requestIDs() {
	ctx := context.Background()
	db, err := inmem.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := es.Open(es.Config{Store: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	accounts, err := es.Host(rt, es.Type[Account, Withdrawn]{
		Name:     "account",
		New:      func(string) *Account { return &Account{Balance: 100} },
		Commands: es.Commands(es.On("withdraw", (*Account).Withdraw)),
		Apply:    (*Account).Apply,
		Events:   codec.Types(codec.Name[Withdrawn]("withdrawn")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		fmt.Println(es.Ask(ctx, accounts.Ref("42"), Withdraw{Request: "order-7", Amount: 60}))
	}
	// Output:
	// 40 <nil>
	// 40 <nil>
}

// Keys holds one key per person, outside of the journal. A program keeps them in a table or in a
// service for keys. Without the key, the personal data of all events is unreadable, also in backups.
type Keys map[string][]byte

var errForgotten = errors.New("the person is forgotten")

func (k Keys) cipherOf(person string) (cipher.AEAD, error) {
	key, known := k[person]
	if !known {
		return nil, errForgotten
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

type (
	// Registered is the event that the program uses.
	Registered struct {
		Person string // an ID that means nothing elsewhere
		Email  string
	}
	// RegisteredRow is the event that the journal stores.
	RegisteredRow struct {
		Person string
		Email  []byte // encrypted
	}
)

// EventsOf returns the events with their stored names. The field Email is stored encrypted.
func EventsOf(keys Keys) *codec.Registry {
	return codec.Types(codec.Adapt("registered",
		func(e Registered) (RegisteredRow, error) {
			c, err := keys.cipherOf(e.Person)
			if err != nil {
				return RegisteredRow{}, err
			}
			nonce := make([]byte, c.NonceSize())
			if _, err = rand.Read(nonce); err != nil {
				return RegisteredRow{}, err
			}
			return RegisteredRow{e.Person, c.Seal(nonce, nonce, []byte(e.Email), nil)}, nil
		},
		func(row RegisteredRow) (Registered, error) {
			c, err := keys.cipherOf(row.Person)
			if errors.Is(err, errForgotten) {
				return Registered{row.Person, "(deleted)"}, nil
			}
			if err != nil {
				return Registered{}, err
			}
			if len(row.Email) < c.NonceSize() {
				return Registered{}, errors.New("the email is too short")
			}
			email, err := c.Open(nil, row.Email[:c.NonceSize()], row.Email[c.NonceSize():], nil)
			return Registered{row.Person, string(email)}, err
		},
	))
}

// The key of a person is deleted. The event remains, without its personal data.
func Example_personalData() {
	keys := Keys{"p-7": []byte("0123456789abcdef0123456789abcdef")} // random in a program
	events := EventsOf(keys)
	manifest, payload, err := events.Encode(Registered{"p-7", "ann@example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(events.Decode(manifest, payload))
	delete(keys, "p-7")
	fmt.Println(events.Decode(manifest, payload))
	// Output:
	// {p-7 ann@example.com} <nil>
	// {p-7 (deleted)} <nil>
}

// wake starts the orders that have work to do. Each state is computed once, so it takes a while with
// a million orders.
func wake[S any](ctx context.Context, orders es.Entities[S]) {
	started, err := orders.Wake(ctx)
	if err != nil {
		slog.ErrorContext(ctx, "some orders do not continue", slog.Any("error", err))
	}
	fmt.Println("continued", started, "orders")
}

// A restart of the program: nothing is pending here.
func Example_wake() {
	ctx := context.Background()
	db, err := inmem.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	rt, err := es.Open(es.Config{Store: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx) //nolint:errcheck // nothing is in flight
	accounts, err := es.Host(rt, es.Type[Account, Withdrawn]{
		Name:   "account",
		Apply:  (*Account).Apply,
		Events: codec.Types(codec.Name[Withdrawn]("withdrawn")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	wake[Account](ctx, accounts)
	// Output: continued 0 orders
}
