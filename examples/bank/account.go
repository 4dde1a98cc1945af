// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/examples/bank/requests"
	"github.com/refold-io/refold/journal"
)

// This file is the complete bank account: its commands, events and state, and the logic between
// them. The other files in this directory only use the account. Copy this file to start an
// aggregate of your own.

type (
	// Event is an event of an account.
	Event interface{ isEvent() }
	// SignalContext and SignalEffect are the types for signals.
	SignalContext = eventsourcing.Context[Account, Event, eventsourcing.None]
	SignalEffect  = eventsourcing.Effect[Account, Event, eventsourcing.None]
)

// AccountTypeName is the first part of the persistence IDs of accounts.
const AccountTypeName = "account"

// The refusals of an account. Their codes are stable.
var (
	ErrNotOpen      = eventsourcing.NewRefusal("bank/not_open", "the account does not exist").OfKind(eventsourcing.NotFound)
	ErrClosed       = eventsourcing.NewRefusal("bank/closed", "the account is closed")
	ErrOtherTerms   = eventsourcing.NewRefusal("bank/other_terms", "the account is already open, with other terms")
	ErrCurrency     = eventsourcing.NewRefusal("bank/unknown_currency", "the currency is not known")
	ErrNotPositive  = eventsourcing.NewRefusal("bank/not_positive", "the amount is not positive")
	ErrTooSmall     = eventsourcing.NewRefusal("bank/too_small", "the amount rounds to zero in the currency of the account")
	ErrTooFine      = eventsourcing.NewRefusal("bank/too_fine", "the amount is finer than the minor unit")
	ErrOverflow     = eventsourcing.NewRefusal("bank/overflow", "the amount is too large")
	ErrInsufficient = eventsourcing.NewRefusal("bank/insufficient_funds", "the balance is too small")
	ErrNoRate       = eventsourcing.NewRefusal("bank/no_rate", "there is no rate for the conversion")
	ErrStaleRate    = eventsourcing.NewRefusal("bank/stale_rate", "the rate for the conversion is too old")
	ErrToItself     = eventsourcing.NewRefusal("bank/to_itself", "the source and the destination of a transfer must differ")
	ErrDestination  = eventsourcing.NewRefusal("bank/bad_destination", "the destination is not a valid account ID")
	ErrNotEmpty     = eventsourcing.NewRefusal("bank/not_empty", "the balance is not zero")
	ErrPending      = eventsourcing.NewRefusal("bank/transfers_pending", "transfers are pending")
	ErrTooManyOpen  = eventsourcing.NewRefusal("bank/too_many_transfers", "too many transfers are pending")
)

// The commands. Each embeds its aggregate and the type of its reply.
type (
	// Open opens an account. Repeating it with the same terms does nothing.
	Open struct {
		eventsourcing.Command[Account, View]
		Request  string
		Currency money.Currency
		Owner    string
	}
	// Deposit adds an amount to the account, in any currency.
	Deposit struct {
		eventsourcing.Command[Account, Receipt]
		Request string
		Amount  money.Amount
	}
	// Withdraw removes an amount from the account, in any currency.
	Withdraw struct {
		eventsourcing.Command[Account, Receipt]
		Request string
		Amount  money.Amount
	}
	// Transfer debits the account and sends the amount to another account. The receipt confirms
	// only the debit.
	Transfer struct {
		eventsourcing.Command[Account, Receipt]
		Request string
		To      string
		Amount  money.Amount
	}
	// Close closes an account with a zero balance.
	Close struct {
		eventsourcing.Command[Account, Receipt]
		Request string
	}
	// Lookup returns the account.
	Lookup struct {
		eventsourcing.Command[Account, View]
		// In is an additional currency for the balance.
		In money.Currency
	}
	// Credit is the message of a transfer from its source to its destination. The source resends it
	// until it is confirmed.
	Credit struct {
		eventsourcing.Command[Account, eventsourcing.Ack]
		delivery.Header
		From   string
		Amount money.Amount // the debited amount
	}
)

// Receipt is the reply to a command that changed the account, and to its retries.
type Receipt struct {
	Balance  money.Amount
	Transfer uint64 // the number of the started transfer
	Repeated bool   // the request was executed before
}

// View is the visible state of an account.
type View struct {
	Owner      string
	Currency   money.Currency
	Closed     bool
	Balance    money.Amount
	InFlight   money.Amount // the sum of Pending
	Pending    []Pending    // by number
	LastChange time.Time
	// Value is the balance in the requested currency.
	Value rates.Exchange
	// Repeated reports that an earlier Open opened the account.
	Repeated bool
}

// Pending is a transfer that is not completed or refunded yet.
type Pending struct {
	Transfer uint64
	To       string
	Amount   money.Amount // the debited amount
}

// The events. AccountType maps them to names in the journal.
type (
	// Cause is part of every event of a customer's command.
	Cause struct {
		At      time.Time
		Request string `msgpack:",omitempty"`
	}
	// Opened starts an account.
	Opened struct {
		Cause
		Currency money.Currency
		Owner    string
	}
	// Deposited and Withdrawn record cash deposits and withdrawals.
	Deposited struct {
		Cause
		rates.Exchange
	}
	Withdrawn struct {
		Cause
		rates.Exchange
	}
	// TransferStarted debits the source. Transfer is the delivery number.
	TransferStarted struct {
		Cause
		rates.Exchange
		Transfer uint64
		To       string
	}
	// TransferCompleted records that the destination accepted the transfer. TransferRefunded
	// records that the destination rejected the transfer.
	TransferCompleted struct {
		At       time.Time
		Transfer uint64
		Amount   money.Amount
	}
	TransferRefunded struct {
		At       time.Time
		Transfer uint64
		Amount   money.Amount
		Reason   string // the code of the refusal
	}
	// Credited records an accepted transfer. Original is the debited amount.
	Credited struct {
		At time.Time
		rates.Exchange
		delivery.Header
		From string
	}
	// CreditRefused records a rejected transfer. It is an event because the source refunds the
	// transfer: the account must also reject a copy of the message that arrives later, even after
	// the account was opened.
	CreditRefused struct {
		At time.Time
		delivery.Header
		From   string
		Amount money.Amount
		Reason string
	}
	// Closed ends an account.
	Closed struct{ Cause }
)

func (Opened) isEvent()            {}
func (Deposited) isEvent()         {}
func (Withdrawn) isEvent()         {}
func (TransferStarted) isEvent()   {}
func (TransferCompleted) isEvent() {}
func (TransferRefunded) isEvent()  {}
func (Credited) isEvent()          {}
func (CreditRefused) isEvent()     {}
func (Closed) isEvent()            {}

// Account is the state of an account, the result of its events. A snapshot contains the exported
// fields.
type Account struct {
	Opened, Closed bool
	Owner          string
	Balance        money.Amount
	Changed        time.Time
	Requests       requests.Memory[Receipt] // executed requests
	Transfers      delivery.Outbox[Credit]  // pending transfers
	Started        uint64                   // the number of transfers started so far
	InFlight       money.Amount             // the amount that refunds may return
	Credits        delivery.Inbox           // received transfers

	id    string      `refold:"-"`
	rates rates.Rates `refold:"-"`
}

// AccountType describes accounts to the framework. Dependencies of accounts are its parameters.
func AccountType(r rates.Rates) eventsourcing.Type[Account, Event] {
	return eventsourcing.Type[Account, Event]{
		Name: AccountTypeName,
		New:  func(id string) *Account { return &Account{id: id, rates: r} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("open", (*Account).open),
			eventsourcing.On("deposit", (*Account).deposit),
			eventsourcing.On("withdraw", (*Account).withdraw),
			eventsourcing.On("transfer", (*Account).transfer),
			eventsourcing.On("close", (*Account).close),
			eventsourcing.On("lookup", (*Account).lookup),
			delivery.On("credit", (*Account).credits, (*Account).credit),
		),
		Parts: eventsourcing.Parts(delivery.Sends("Transfers", (*Account).transfers, (*Account).answered)),
		Apply: (*Account).apply,
		Events: codec.Types(
			codec.Name[Opened]("opened"),
			codec.Name[Deposited]("deposited"),
			codec.Name[Withdrawn]("withdrawn"),
			codec.Name[TransferStarted]("transfer_started"),
			codec.Name[TransferCompleted]("transfer_completed"),
			codec.Name[TransferRefunded]("transfer_refunded"),
			codec.Name[Credited]("credited"),
			codec.Name[CreditRefused]("credit_refused"),
			codec.Name[Closed]("closed"),
		),
		Snapshots: eventsourcing.Snapshots[Account, Event]{Every: 100, Keep: 2},
	}
}

// The handlers decide the event of a command. They do not change the state.

func (a *Account) deposit(ctx *eventsourcing.Context[Account, Event, Receipt], c Deposit) eventsourcing.Decision[Account, Event, Receipt] {
	return a.change(ctx, c.Request, asked("deposit", c.Amount, ""), func(cause Cause) (Event, error) {
		x, err := a.exchange(c.Amount, cause.At)
		if err != nil {
			return nil, err
		}
		return Deposited{cause, x}, a.canHold(x.Amount)
	})
}

func (a *Account) withdraw(ctx *eventsourcing.Context[Account, Event, Receipt], c Withdraw) eventsourcing.Decision[Account, Event, Receipt] {
	return a.change(ctx, c.Request, asked("withdraw", c.Amount, ""), func(cause Cause) (Event, error) {
		x, err := a.exchange(c.Amount, cause.At)
		if err != nil {
			return nil, err
		}
		return Withdrawn{cause, x}, a.canPay(x.Amount)
	})
}

func (a *Account) transfer(ctx *eventsourcing.Context[Account, Event, Receipt], c Transfer) eventsourcing.Decision[Account, Event, Receipt] {
	return a.change(ctx, c.Request, asked("transfer", c.Amount, c.To), func(cause Cause) (Event, error) {
		if err := a.canSend(c.To); err != nil {
			return nil, err
		}
		x, err := a.exchange(c.Amount, cause.At)
		if err != nil {
			return nil, err
		}
		return TransferStarted{cause, x, a.Started + 1, c.To}, a.canPay(x.Amount)
	})
}

func (a *Account) close(ctx *eventsourcing.Context[Account, Event, Receipt], c Close) eventsourcing.Decision[Account, Event, Receipt] {
	return a.change(ctx, c.Request, asked("close", money.Amount{}, ""), func(cause Cause) (Event, error) {
		return Closed{cause}, a.canClose()
	})
}

func (a *Account) lookup(ctx *eventsourcing.Context[Account, Event, View], c Lookup) eventsourcing.Decision[Account, Event, View] {
	view, err := a.View(c.In, ctx.Now())
	if err != nil {
		return ctx.Refuse(err)
	}
	return ctx.Reply(view)
}

func (a *Account) open(ctx *eventsourcing.Context[Account, Event, View], c Open) eventsourcing.Decision[Account, Event, View] {
	nothing := money.Zero(c.Currency)
	view := View{Owner: c.Owner, Currency: c.Currency, Balance: nothing, InFlight: nothing}
	_, done, err := a.Requests.Check(c.Request, askedOpen(c.Currency, c.Owner))
	same := c.Owner == a.Owner && c.Currency == a.Balance.Currency()
	switch {
	case err != nil:
		return ctx.Refuse(err)
	case done, a.Opened && !a.Closed && same:
		view.Repeated = true
		return ctx.Reply(view)
	case a.Closed:
		return ctx.Refuse(ErrClosed)
	case a.Opened:
		return ctx.Refuse(ErrOtherTerms)
	case !c.Currency.Known():
		return ctx.Refuse(ErrCurrency)
	}
	return ctx.Persist(Opened{Cause{ctx.Now(), c.Request}, c.Currency, c.Owner}).Reply(view)
}

// change executes each request that changes the account once, and only while the account is open.
func (a *Account) change(ctx *eventsourcing.Context[Account, Event, Receipt], request, content string, decide func(Cause) (Event, error)) eventsourcing.Decision[Account, Event, Receipt] {
	first, done, err := a.Requests.Check(request, content)
	switch {
	case err != nil:
		return ctx.Refuse(err)
	case done:
		first.Repeated = true
		return ctx.Reply(first)
	case a.Closed:
		return ctx.Refuse(ErrClosed)
	case !a.Opened:
		return ctx.Refuse(ErrNotOpen)
	}
	event, err := decide(Cause{ctx.Now(), request})
	if err != nil {
		return ctx.Refuse(err)
	}
	return ctx.Persist(event).ReplyFunc(func() Receipt { return a.receipt(event) })
}

// receipt is the reply to a command, after its event was applied.
func (a *Account) receipt(event Event) Receipt {
	started, _ := event.(TransferStarted)
	return Receipt{Balance: a.Balance, Transfer: started.Transfer}
}

// asked describes a request, so that a repeated request can be compared with the first one.
func asked(subject string, amount money.Amount, to string) string {
	return subject + " " + amount.String() + " " + to
}

func askedOpen(currency money.Currency, owner string) string {
	return asked("open "+string(currency), money.Amount{}, owner)
}

// exchange converts an amount to the currency of the account, at the current rate.
func (a *Account) exchange(original money.Amount, now time.Time) (rates.Exchange, error) {
	switch {
	case !original.Currency().Known():
		return rates.Exchange{}, ErrCurrency
	case !original.Positive():
		return rates.Exchange{}, ErrNotPositive
	}
	x, err := rates.Convert(a.rates, original, a.Balance.Currency(), now)
	switch {
	case err != nil:
		return x, noExchange(err)
	case !x.Amount.Positive():
		return x, ErrTooSmall
	}
	return x, nil
}

// noExchange converts an error of a conversion to a refusal.
func noExchange(err error) error {
	switch {
	case errors.Is(err, money.ErrOverflow):
		return fmt.Errorf("%w: %w", ErrOverflow, err)
	case errors.Is(err, rates.ErrStale):
		return fmt.Errorf("%w: %w", ErrStaleRate, err)
	}
	return fmt.Errorf("%w: %w", ErrNoRate, err)
}

// canHold checks that the balance cannot overflow, even if all transfers are refunded.
func (a *Account) canHold(amount money.Amount) error {
	if _, err := sure(a.Balance.Add(a.InFlight)).Add(amount); err != nil {
		return ErrOverflow
	}
	return nil
}

func (a *Account) canPay(amount money.Amount) error {
	if a.Balance.Less(amount) {
		return ErrInsufficient
	}
	return nil
}

func (a *Account) canSend(to string) error {
	switch {
	case to == a.id:
		return ErrToItself
	case journal.CheckID(to) != nil || journal.CheckID(journal.JoinID(AccountTypeName, to)) != nil:
		return ErrDestination
	case a.Transfers.Room(1) != nil:
		return ErrTooManyOpen
	}
	return nil
}

func (a *Account) canClose() error {
	switch {
	case a.Transfers.Unconfirmed() > 0:
		return ErrPending
	case !a.Balance.IsZero():
		return ErrNotEmpty
	}
	return nil
}

func (a *Account) credits() *delivery.Inbox { return &a.Credits }

func (a *Account) transfers() *delivery.Outbox[Credit] { return &a.Transfers }

// credit handles a transfer from another account. delivery.On calls credit until it decides, and
// replies to later copies of the message without calling credit.
func (a *Account) credit(ctx *eventsourcing.Context[Account, Event, eventsourcing.Ack], c Credit) eventsourcing.Decision[Account, Event, eventsourcing.Ack] {
	x, err := a.accept(c.Amount, ctx.Now())
	refusal, refused := errors.AsType[*eventsourcing.Refusal](err)
	switch {
	case errors.Is(err, ErrNoRate), errors.Is(err, ErrStaleRate):
		// An error that is not a refusal does not end a transfer: the source resends it.
		return ctx.Refuse(errors.New("the transfer waits for a rate: " + err.Error()))
	case refused:
		return ctx.Persist(CreditRefused{ctx.Now(), c.Header, c.From, c.Amount, refusal.Code()}).Refuse(refusal)
	}
	return ctx.Persist(Credited{ctx.Now(), x, c.Header, c.From}).Reply(eventsourcing.Ack{})
}

// accept returns the credited amount of a transfer, or a refusal.
func (a *Account) accept(amount money.Amount, now time.Time) (rates.Exchange, error) {
	switch {
	case a.Closed:
		return rates.Exchange{}, ErrClosed
	case !a.Opened:
		return rates.Exchange{}, ErrNotOpen
	}
	x, err := a.exchange(amount, now)
	if err != nil {
		return x, err
	}
	return x, a.canHold(x.Amount)
}

// answered ends a transfer when its destination has replied.
func (a *Account) answered(ctx *SignalContext, s delivery.Answered[Credit, eventsourcing.Ack]) SignalEffect {
	if refusal, refused := errors.AsType[*eventsourcing.Refusal](s.Err); refused {
		return ctx.Persist(TransferRefunded{ctx.Now(), s.Nr, s.Message.Amount, refusal.Code()})
	}
	return ctx.Persist(TransferCompleted{ctx.Now(), s.Nr, s.Message.Amount})
}

// apply applies an event to the state. It has no other effect.
func (a *Account) apply(event Event) {
	switch e := event.(type) {
	case Opened:
		a.Opened, a.Owner, a.Changed = true, e.Owner, e.At
		a.Balance, a.InFlight = money.Zero(e.Currency), money.Zero(e.Currency)
		a.Requests.Record(e.Request, askedOpen(e.Currency, e.Owner), a.receipt(e))
	case Deposited:
		a.Balance, a.Changed = sure(a.Balance.Add(e.Amount)), e.At
		a.Requests.Record(e.Request, asked("deposit", e.Original, ""), a.receipt(e))
	case Withdrawn:
		a.Balance, a.Changed = sure(a.Balance.Sub(e.Amount)), e.At
		a.Requests.Record(e.Request, asked("withdraw", e.Original, ""), a.receipt(e))
	case TransferStarted:
		a.Balance, a.Changed = sure(a.Balance.Sub(e.Amount)), e.At
		a.InFlight = sure(a.InFlight.Add(e.Amount))
		a.Started++
		a.Transfers.Deliver(eventsourcing.Address{Type: AccountTypeName, ID: e.To}, Credit{From: a.id, Amount: e.Amount})
		a.Requests.Record(e.Request, asked("transfer", e.Original, e.To), a.receipt(e))
	case TransferCompleted:
		a.InFlight, a.Changed = sure(a.InFlight.Sub(e.Amount)), e.At
		a.Transfers.Confirm(e.Transfer)
	case TransferRefunded:
		a.InFlight, a.Changed = sure(a.InFlight.Sub(e.Amount)), e.At
		a.Balance = sure(a.Balance.Add(e.Amount))
		a.Transfers.Confirm(e.Transfer)
	case Credited:
		a.Balance, a.Changed = sure(a.Balance.Add(e.Amount)), e.At
		a.Credits.Record(e.Header)
	case CreditRefused:
		a.Changed = e.At
		a.Credits.RecordRefusal(e.Header, eventsourcing.NewRefusal(e.Reason, "the transfer was turned away"))
	case Closed:
		a.Closed, a.Changed = true, e.At
		a.Requests.Record(e.Request, asked("close", money.Amount{}, ""), a.receipt(e))
	}
}

// View returns the visible state, with the balance in an additional currency if in is set.
func (a *Account) View(in money.Currency, now time.Time) (View, error) {
	if !a.Opened {
		return View{}, ErrNotOpen
	}
	view := View{
		Owner: a.Owner, Currency: a.Balance.Currency(), Closed: a.Closed,
		Balance: a.Balance, InFlight: a.InFlight, LastChange: a.Changed,
	}
	for t := range a.Transfers.All() {
		view.Pending = append(view.Pending, Pending{t.Nr, t.To.ID, t.Message.Amount})
	}
	if in == "" {
		return view, nil
	}
	if !in.Known() {
		return View{}, ErrCurrency
	}
	x, err := rates.Convert(a.rates, a.Balance, in, now)
	if err != nil {
		return View{}, noExchange(err)
	}
	view.Value = x
	return view, nil
}

// sure returns a sum that was checked when the event was decided. An error means that the history
// is damaged, so the recovery must fail.
func sure(sum money.Amount, err error) money.Amount {
	if err != nil {
		panic(err)
	}
	return sum
}
