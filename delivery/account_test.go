// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
)

// The commands of an account.
type (
	Command interface{ eventsourcing.Target[Command] }
	Ctx     = eventsourcing.Context[Command, Event]
	Effect  = eventsourcing.Effect[Command, Event]

	Deposit struct {
		eventsourcing.For[Command, int]
		Amount int
	}
	Transfer struct { // is answered with the number of the delivery
		eventsourcing.For[Command, uint64]
		To     string
		Amount int
	}
	Credit struct { // is delivered, and answered with the balance
		eventsourcing.For[Command, int]
		delivery.Header
		Amount int
	}
	Lock struct { // a locked account refuses credits
		eventsourcing.For[Command, bool]
		Locked bool
	}
	Lookup struct {
		eventsourcing.For[Command, Report]
	}
	Report struct{ Balance, InFlight, Senders, Unconfirmed int }
)

// Its events.
type (
	Event           interface{ isEvent() }
	Deposited       struct{ Amount int }
	TransferStarted struct {
		To     string
		Amount int
	}
	TransferCompleted struct{ Nr uint64 }
	TransferRefunded  struct {
		Nr     uint64
		Amount int
		Reason string
	}
	Credited struct {
		Delivery delivery.Header
		Amount   int
	}
	CreditRefused struct{ Delivery delivery.Header }
	Locked        struct{ Locked bool }
)

func (Deposited) isEvent()         {}
func (TransferStarted) isEvent()   {}
func (TransferCompleted) isEvent() {}
func (TransferRefunded) isEvent()  {}
func (Credited) isEvent()          {}
func (CreditRefused) isEvent()     {}
func (Locked) isEvent()            {}

var (
	errLocked = eventsourcing.NewRefusal("test/locked", "the account is locked")
	errPoor   = eventsourcing.NewRefusal("test/poor", "the balance is too small")
)

// Account is an aggregate that transfers money.
type Account struct {
	Balance   int
	InFlight  int // debited, and not known to be credited
	Locked    bool
	Transfers delivery.Outbox[Credit]
	Credits   delivery.Inbox

	probe *probe `refold:"-"`
}

// probe is what a test sees and does besides.
type probe struct {
	settings delivery.Settings
	signal   func(id string, s eventsourcing.Signal)
	deaf     atomic.Bool // answers are not acted on
}

func (a *Account) HandleCommand(ctx *Ctx, cmd Command) Effect {
	switch c := cmd.(type) {
	case Deposit:
		return ctx.Persist(Deposited{c.Amount}).Reply(c.Answer(func() int { return a.Balance }))
	case Transfer:
		if a.Balance < c.Amount {
			return ctx.Refuse(errPoor)
		}
		if err := a.Transfers.Room(1); err != nil {
			return ctx.Refuse(err)
		}
		return ctx.Persist(TransferStarted{To: c.To, Amount: c.Amount}).Reply(c.Answer(a.lastTransfer))
	case Credit:
		switch {
		case a.Credits.Seen(c.Header):
			if err := a.Credits.Refusal(c.Header); err != nil {
				return ctx.Refuse(err)
			}
			return ctx.Reply(c.With(a.Balance))
		case a.Locked:
			return ctx.Persist(CreditRefused{c.Header}).Refuse(errLocked)
		}
		return ctx.Persist(Credited{Delivery: c.Header, Amount: c.Amount}).Reply(c.Answer(func() int { return a.Balance }))
	case Lock:
		return ctx.Persist(Locked{c.Locked}).Reply(c.With(c.Locked))
	case Lookup:
		return ctx.Reply(c.With(Report{
			Balance: a.Balance, InFlight: a.InFlight, Senders: a.Credits.Senders(), Unconfirmed: a.Transfers.Unconfirmed(),
		}))
	}
	return ctx.Unhandled()
}

func (a *Account) lastTransfer() (nr uint64) {
	for d := range a.Transfers.All() {
		nr = d.Nr
	}
	return nr
}

func (a *Account) HandleSignal(ctx *Ctx, signal eventsourcing.Signal) Effect {
	if a.probe.signal != nil {
		a.probe.signal(ctx.ID(), signal)
	}
	switch s := signal.(type) {
	case delivery.Answered[Credit]:
		switch {
		case a.probe.deaf.Load():
		case s.Err != nil:
			return ctx.Persist(TransferRefunded{Nr: s.Nr, Amount: s.Message.Amount, Reason: eventsourcing.Code(s.Err)})
		default:
			return ctx.Persist(TransferCompleted{Nr: s.Nr})
		}
	}
	return ctx.None()
}

func (a *Account) ApplyEvent(event Event) {
	switch e := event.(type) {
	case Deposited:
		a.Balance += e.Amount
	case TransferStarted:
		a.Balance -= e.Amount
		a.InFlight += e.Amount
		a.Transfers.Deliver(eventsourcing.Address{Type: "account", ID: e.To}, Credit{Amount: e.Amount})
	case TransferCompleted:
		a.end(e.Nr, 0)
	case TransferRefunded:
		a.end(e.Nr, e.Amount)
	case Credited:
		a.Balance += e.Amount
		a.Credits.Record(e.Delivery)
	case CreditRefused:
		a.Credits.RecordRefusal(e.Delivery, errLocked)
	case Locked:
		a.Locked = e.Locked
	}
}

func (a *Account) end(nr uint64, refund int) {
	if d, ok := a.Transfers.Pending(nr); ok {
		a.InFlight -= d.Message.Amount
	}
	a.Transfers.Confirm(nr)
	a.Balance += refund
}

func accountType(p *probe) eventsourcing.Type[Command, Event] {
	return eventsourcing.Type[Command, Event]{
		Name: "account",
		New: func(string) eventsourcing.Aggregate[Command, Event] {
			a := &Account{probe: p}
			a.Transfers.Configure(p.settings)
			return a
		},
		Events: codec.Types(
			codec.Name[Deposited]("deposited"), codec.Name[TransferStarted]("transfer_started"),
			codec.Name[TransferCompleted]("transfer_completed"), codec.Name[TransferRefunded]("transfer_refunded"),
			codec.Name[Credited]("credited"), codec.Name[CreditRefused]("credit_refused"), codec.Name[Locked]("locked"),
		),
		Snapshots: eventsourcing.SnapshotEvery(5).Keep(2),
	}
}

// bank is a runtime with accounts.
type bank struct {
	*eventsourcing.Entities[Command, Event]
	runtime *eventsourcing.Runtime
}

func openBank(t *testing.T, cfg eventsourcing.Config, typ eventsourcing.Type[Command, Event], opts eventsourcing.HostOptions) *bank {
	t.Helper()
	rt, err := eventsourcing.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := eventsourcing.Host(rt, typ, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &bank{Entities: accounts, runtime: rt}
}

// close closes the bank orderly.
func (b *bank) close(t *testing.T) {
	t.Helper()
	if err := b.runtime.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// crash closes the bank without waiting for anything.
func (b *bank) crash(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.runtime.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func ask[R any](t *testing.T, b *bank, id string, q eventsourcing.Query[Command, R]) R {
	t.Helper()
	r, err := eventsourcing.Ask(context.Background(), b.Ref(id), q)
	if err != nil {
		t.Fatalf("%T to %s: %v", q, id, err)
	}
	return r
}
