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
	Ctx[R any]      = eventsourcing.Context[Account, Event, R]
	Decision[R any] = eventsourcing.Decision[Account, Event, R]
	SignalCtx       = eventsourcing.Context[Account, Event, eventsourcing.None]
	SignalEffect    = eventsourcing.Effect[Account, Event, eventsourcing.None]

	Deposit struct {
		eventsourcing.Command[Account, int]
		Amount int
	}
	Transfer struct { // is answered with the number of the delivery
		eventsourcing.Command[Account, uint64]
		To     string
		Amount int
	}
	Credit struct { // is delivered, and answered with the balance
		eventsourcing.Command[Account, int]
		delivery.Header
		Amount int
	}
	Lock struct { // a locked account refuses credits
		eventsourcing.Command[Account, bool]
		Locked bool
	}
	Lookup struct {
		eventsourcing.Command[Account, Report]
	}
	Report struct{ Balance, InFlight, Senders, Unconfirmed int }
)

// The events of an account.
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
	InFlight  int // debited, and not yet confirmed as credited
	Locked    bool
	Transfers delivery.Outbox[Credit]
	Credits   delivery.Inbox

	probe *probe `refold:"-"`
}

// probe records the signals and the calls of an account for a test.
type probe struct {
	options delivery.Options
	signal  func(id string, s eventsourcing.Signal)
	ignores atomic.Bool // the account ignores answers
}

func (a *Account) deposit(ctx *Ctx[int], c Deposit) Decision[int] {
	return ctx.Persist(Deposited{c.Amount}).ReplyFunc(a.balance)
}

func (a *Account) balance() int { return a.Balance }

func (a *Account) transfer(ctx *Ctx[uint64], c Transfer) Decision[uint64] {
	if a.Balance < c.Amount {
		return ctx.Refuse(errPoor)
	}
	if err := a.Transfers.Room(1); err != nil {
		return ctx.Refuse(err)
	}
	return ctx.Persist(TransferStarted{To: c.To, Amount: c.Amount}).ReplyFunc(a.lastTransfer)
}

func (a *Account) credit(ctx *Ctx[int], c Credit) Decision[int] {
	switch {
	case a.Credits.Seen(c.Header):
		if err := a.Credits.Refusal(c.Header); err != nil {
			return ctx.Refuse(err)
		}
		return ctx.Reply(a.Balance)
	case a.Locked:
		return ctx.Persist(CreditRefused{c.Header}).Refuse(errLocked)
	}
	return ctx.Persist(Credited{Delivery: c.Header, Amount: c.Amount}).ReplyFunc(a.balance)
}

func (a *Account) lock(ctx *Ctx[bool], c Lock) Decision[bool] {
	return ctx.Persist(Locked{c.Locked}).Reply(c.Locked)
}

func (a *Account) lookup(ctx *Ctx[Report], _ Lookup) Decision[Report] {
	return ctx.Reply(Report{
		Balance: a.Balance, InFlight: a.InFlight, Senders: a.Credits.Senders(), Unconfirmed: a.Transfers.Unconfirmed(),
	})
}

func (a *Account) lastTransfer() (nr uint64) {
	for d := range a.Transfers.All() {
		nr = d.Nr
	}
	return nr
}

func (a *Account) answered(ctx *SignalCtx, s delivery.Answered[Credit, int]) SignalEffect {
	a.probe.record(ctx.ID(), s)
	switch {
	case a.probe.ignores.Load():
		return ctx.Effect
	case s.Err != nil:
		return ctx.Persist(TransferRefunded{Nr: s.Nr, Amount: s.Message.Amount, Reason: eventsourcing.StatusOf(s.Err).Code})
	}
	return ctx.Persist(TransferCompleted{Nr: s.Nr})
}

func (a *Account) unconfirmed(ctx *SignalCtx, s delivery.Unconfirmed[Credit]) SignalEffect {
	a.probe.record(ctx.ID(), s)
	return ctx.Effect
}

func (p *probe) record(id string, s eventsourcing.Signal) {
	if p.signal != nil {
		p.signal(id, s)
	}
}

func (a *Account) apply(event Event) {
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

func (a *Account) transfers() *delivery.Outbox[Credit] { return &a.Transfers }

func accountType(p *probe) eventsourcing.Type[Account, Event] {
	return eventsourcing.Type[Account, Event]{
		Name: "account",
		New:  func(string) *Account { return &Account{probe: p} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("", (*Account).deposit), eventsourcing.On("", (*Account).transfer), eventsourcing.On("", (*Account).credit),
			eventsourcing.On("", (*Account).lock), eventsourcing.On("", (*Account).lookup),
		),
		Signals: eventsourcing.Signals(eventsourcing.OnSignal((*Account).unconfirmed)),
		Parts:   eventsourcing.Parts(delivery.SendsWith("Transfers", (*Account).transfers, p.options, (*Account).answered)),
		Apply:   (*Account).apply,
		Events: codec.Types(
			codec.Name[Deposited]("deposited"), codec.Name[TransferStarted]("transfer_started"),
			codec.Name[TransferCompleted]("transfer_completed"), codec.Name[TransferRefunded]("transfer_refunded"),
			codec.Name[Credited]("credited"), codec.Name[CreditRefused]("credit_refused"), codec.Name[Locked]("locked"),
		),
		Snapshots: eventsourcing.Snapshots[Account, Event]{Every: 5, Keep: 2},
	}
}

// bank is a runtime with accounts.
type bank[S any] struct {
	*eventsourcing.Local[S, Event]
	runtime *eventsourcing.Runtime
}

func openBank[S any](t *testing.T, cfg eventsourcing.Config, typ eventsourcing.Type[S, Event], opts eventsourcing.HostOptions) *bank[S] {
	t.Helper()
	rt, err := eventsourcing.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := eventsourcing.HostWith(rt, typ, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &bank[S]{Local: accounts, runtime: rt}
}

// close closes the runtime and waits until its accounts have stopped.
func (b *bank[S]) close(t *testing.T) {
	t.Helper()
	if err := b.runtime.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// crash closes the runtime without waiting.
func (b *bank[S]) crash(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.runtime.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func ask[S, R any](t *testing.T, b *bank[S], id string, q eventsourcing.Request[S, R]) R {
	t.Helper()
	r, err := eventsourcing.Ask(context.Background(), b.Ref(id), q)
	if err != nil {
		t.Fatalf("Ask with %T to %s: %v", q, id, err)
	}
	return r
}
