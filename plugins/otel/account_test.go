// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package otel_test

import (
	"context"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/otel"
)

// The entity of the tests is an account that sends transfers to other accounts.
type (
	Event           interface{ isEvent() }
	Ctx[R any]      = eventsourcing.Context[Account, Event, R]
	Decision[R any] = eventsourcing.Decision[Account, Event, R]

	Deposit struct {
		eventsourcing.Command[Account, int]
		Amount int
	}
	Transfer struct {
		eventsourcing.Command[Account, int]
		To     string
		Amount int
	}
	Credit struct { // sent as a delivery
		eventsourcing.Command[Account, bool]
		delivery.Header
		Amount int
	}

	Deposited   struct{ Amount int }
	Transferred struct {
		To     string
		Amount int
	}
	Completed struct{ Nr uint64 }
	Credited  struct {
		Delivery delivery.Header
		Amount   int
	}
)

func (Deposited) isEvent()   {}
func (Transferred) isEvent() {}
func (Completed) isEvent()   {}
func (Credited) isEvent()    {}

var errPoor = eventsourcing.NewRefusal("bank/poor", "account 42 of Jane Doe holds 7 only")

type Account struct {
	Balance   int
	Transfers delivery.Outbox[Credit]
	Credits   delivery.Inbox

	unconfirmed bool `refold:"-"` // if true, the account ignores confirmations of transfers
}

func (a *Account) balance() int { return a.Balance }

func (a *Account) deposit(ctx *Ctx[int], c Deposit) Decision[int] {
	if c.Amount < 0 {
		panic("no amount")
	}
	return ctx.Persist(Deposited{c.Amount}).ReplyFunc(a.balance)
}

func (a *Account) transfer(ctx *Ctx[int], c Transfer) Decision[int] {
	if c.Amount > a.Balance {
		return ctx.Refuse(errPoor)
	}
	return ctx.Persist(Transferred{To: c.To, Amount: c.Amount}).ReplyFunc(a.balance)
}

func (a *Account) credit(ctx *Ctx[bool], c Credit) Decision[bool] {
	if a.Credits.Seen(c.Header) {
		return ctx.Reply(true)
	}
	return ctx.Persist(Credited{Delivery: c.Header, Amount: c.Amount}).Reply(true)
}

func (a *Account) answered(ctx *Ctx[eventsourcing.None], s delivery.Answered[Credit, bool]) eventsourcing.Effect[Account, Event, eventsourcing.None] {
	if a.unconfirmed {
		return ctx.Effect
	}
	return ctx.Persist(Completed{s.Nr})
}

func (a *Account) transfers() *delivery.Outbox[Credit] { return &a.Transfers }

func (a *Account) apply(event Event) {
	switch e := event.(type) {
	case Deposited:
		a.Balance += e.Amount
	case Transferred:
		a.Balance -= e.Amount
		a.Transfers.Deliver(eventsourcing.Address{Type: "account", ID: e.To}, Credit{Amount: e.Amount})
	case Completed:
		a.Transfers.Confirm(e.Nr)
	case Credited:
		a.Balance += e.Amount
		a.Credits.Record(e.Delivery)
	}
}

func accountType(unconfirmed bool) eventsourcing.Type[Account, Event] {
	return eventsourcing.Type[Account, Event]{
		Name: "account",
		New:  func(string) *Account { return &Account{unconfirmed: unconfirmed} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("deposit", (*Account).deposit), eventsourcing.On("transfer", (*Account).transfer), eventsourcing.On("credit", (*Account).credit),
		),
		Parts: eventsourcing.Parts(delivery.SendsWith("Transfers", (*Account).transfers, delivery.Options{Interval: time.Hour}, (*Account).answered)),
		Apply: (*Account).apply,
		Events: codec.Types(codec.Name[Deposited]("deposited"), codec.Name[Transferred]("transferred"),
			codec.Name[Completed]("completed"), codec.Name[Credited]("credited")),
		Snapshots: eventsourcing.Snapshots[Account, Event]{Every: 2},
	}
}

type bank struct {
	*eventsourcing.Local[Account, Event]
	rt *eventsourcing.Runtime
}

func openBank(tb testing.TB, cfg eventsourcing.Config, unconfirmed bool) *bank {
	tb.Helper()
	rt, err := eventsourcing.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bank{rt: rt}
	if b.Local, err = eventsourcing.Host(rt, accountType(unconfirmed)); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { b.close(tb) })
	return b
}

func (b *bank) close(tb testing.TB) {
	tb.Helper()
	if err := b.rt.Close(context.Background()); err != nil {
		tb.Error(err)
	}
}

func newTelemetry(tb testing.TB, cfg otel.Config) *otel.Telemetry {
	tb.Helper()
	telemetry, err := otel.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := telemetry.Close(); err != nil {
			tb.Error(err)
		}
	})
	return telemetry
}

func ask[R any](tb testing.TB, ctx context.Context, b *bank, id string, q eventsourcing.Request[Account, R]) R { //nolint:revive // tb first
	tb.Helper()
	answer, err := eventsourcing.Ask(ctx, b.Ref(id), q)
	if err != nil {
		tb.Fatal(err)
	}
	return answer
}
