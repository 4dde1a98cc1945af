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

// Accounts that transfer money, and trust that it arrives.
type (
	Command interface{ eventsourcing.Target[Command] }
	Event   interface{ isEvent() }
	Ctx     = eventsourcing.Context[Command, Event]
	Effect  = eventsourcing.Effect[Command, Event]

	Deposit struct {
		eventsourcing.For[Command, int]
		Amount int
	}
	Transfer struct {
		eventsourcing.For[Command, int]
		To     string
		Amount int
	}
	Credit struct { // is delivered
		eventsourcing.For[Command, bool]
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

	deaf bool `refold:"-"` // answers are not acted on
}

func (a *Account) HandleCommand(ctx *Ctx, cmd Command) Effect {
	switch c := cmd.(type) {
	case Deposit:
		if c.Amount < 0 {
			panic("no amount")
		}
		return ctx.Persist(Deposited{c.Amount}).Reply(c.Answer(func() int { return a.Balance }))
	case Transfer:
		if c.Amount > a.Balance {
			return ctx.Refuse(errPoor)
		}
		return ctx.Persist(Transferred{To: c.To, Amount: c.Amount}).Reply(c.Answer(func() int { return a.Balance }))
	case Credit:
		if a.Credits.Seen(c.Header) {
			return ctx.Reply(c.With(true))
		}
		return ctx.Persist(Credited{Delivery: c.Header, Amount: c.Amount}).Reply(c.With(true))
	}
	return ctx.Unhandled()
}

func (a *Account) HandleSignal(ctx *Ctx, signal eventsourcing.Signal) Effect {
	if s, ok := signal.(delivery.Answered[Credit]); ok && !a.deaf {
		return ctx.Persist(Completed{s.Nr})
	}
	return ctx.None()
}

func (a *Account) ApplyEvent(event Event) {
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

func accountType(deaf bool) eventsourcing.Type[Command, Event] {
	return eventsourcing.Type[Command, Event]{
		Name: "account",
		New: func(string) eventsourcing.Aggregate[Command, Event] {
			a := &Account{deaf: deaf}
			a.Transfers.Configure(delivery.Settings{Interval: time.Hour})
			return a
		},
		Events: codec.Types(codec.Name[Deposited]("deposited"), codec.Name[Transferred]("transferred"),
			codec.Name[Completed]("completed"), codec.Name[Credited]("credited")),
		Snapshots: eventsourcing.SnapshotEvery(2),
	}
}

type bank struct {
	*eventsourcing.Entities[Command, Event]
	rt *eventsourcing.Runtime
}

func openBank(tb testing.TB, cfg eventsourcing.Config, deaf bool) *bank {
	tb.Helper()
	rt, err := eventsourcing.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bank{rt: rt}
	if b.Entities, err = eventsourcing.Host(rt, accountType(deaf), eventsourcing.HostOptions{}); err != nil {
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

func ask[R any](tb testing.TB, ctx context.Context, b *bank, id string, q eventsourcing.Query[Command, R]) R { //nolint:revive // tb first
	tb.Helper()
	answer, err := eventsourcing.Ask(ctx, b.Ref(id), q)
	if err != nil {
		tb.Fatal(err)
	}
	return answer
}
