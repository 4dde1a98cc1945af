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

// This file is the whole bank account: what it is asked, what it remembers, and
// how one leads to the other. Everything else in this directory is a way to call
// it. Copy it to begin an aggregate of your own.

type (
	// Command is what an account can be asked.
	Command interface{ eventsourcing.Target[Command] }
	// Event is what can happen to an account.
	Event interface{ isEvent() }
	// Ctx and Effect are those of the framework, for accounts.
	Ctx    = eventsourcing.Context[Command, Event]
	Effect = eventsourcing.Effect[Command, Event]
)

// AccountTypeName is the first part of the persistence IDs of accounts.
const AccountTypeName = "account"

// Why an account refuses a command. The codes are stable.
var (
	ErrNotOpen      = eventsourcing.NewRefusal("bank/not_open", "there is no such account")
	ErrClosed       = eventsourcing.NewRefusal("bank/closed", "the account is closed")
	ErrOtherTerms   = eventsourcing.NewRefusal("bank/other_terms", "the account is open already, with other terms")
	ErrCurrency     = eventsourcing.NewRefusal("bank/unknown_currency", "the currency is not known")
	ErrNotPositive  = eventsourcing.NewRefusal("bank/not_positive", "the amount is not positive")
	ErrTooSmall     = eventsourcing.NewRefusal("bank/too_small", "the amount is nothing in the currency of the account")
	ErrTooFine      = eventsourcing.NewRefusal("bank/too_fine", "the amount is finer than the minor unit")
	ErrOverflow     = eventsourcing.NewRefusal("bank/overflow", "the amount is too large")
	ErrInsufficient = eventsourcing.NewRefusal("bank/insufficient_funds", "the balance is too small")
	ErrNoRate       = eventsourcing.NewRefusal("bank/no_rate", "there is no rate for the conversion")
	ErrStaleRate    = eventsourcing.NewRefusal("bank/stale_rate", "the rate for the conversion is too old")
	ErrToItself     = eventsourcing.NewRefusal("bank/to_itself", "a transfer goes to another account")
	ErrDestination  = eventsourcing.NewRefusal("bank/bad_destination", "the destination is no account ID")
	ErrNotEmpty     = eventsourcing.NewRefusal("bank/not_empty", "the balance is not zero")
	ErrPending      = eventsourcing.NewRefusal("bank/transfers_pending", "transfers are pending")
	ErrTooManyOpen  = eventsourcing.NewRefusal("bank/too_many_transfers", "too many transfers are pending")
)

// The commands. For says what each is answered with.
type (
	// Open opens an account. Opening it again with the same terms does nothing.
	Open struct {
		eventsourcing.For[Command, View]
		Request  string
		Currency money.Currency
		Owner    string
	}
	// Deposit puts an amount into the account, in any currency.
	Deposit struct {
		eventsourcing.For[Command, Receipt]
		Request string
		Amount  money.Amount
	}
	// Withdraw takes an amount out of the account, in any currency.
	Withdraw struct {
		eventsourcing.For[Command, Receipt]
		Request string
		Amount  money.Amount
	}
	// Transfer takes an amount out of the account and sends it to another one.
	// The receipt says that it is on its way.
	Transfer struct {
		eventsourcing.For[Command, Receipt]
		Request string
		To      string
		Amount  money.Amount
	}
	// Close ends an account that is empty.
	Close struct {
		eventsourcing.For[Command, Receipt]
		Request string
	}
	// Lookup shows the account.
	Lookup struct {
		eventsourcing.For[Command, View]
		// In is a further currency in which to show the balance.
		In money.Currency
	}
	// Credit is what one account sends to another for a transfer, again and
	// again until it is answered.
	Credit struct {
		eventsourcing.For[Command, Accepted]
		delivery.Header
		From   string
		Amount money.Amount // as it was debited
	}
)

// Receipt answers a command that changed the account, and every retry of it.
type Receipt struct {
	Balance  money.Amount
	Transfer uint64 // the number of the transfer that was started
	Repeated bool   // the request was done before
}

// Accepted answers a Credit.
type Accepted struct{}

// View is what an account looks like.
type View struct {
	Owner      string
	Currency   money.Currency
	Closed     bool
	Balance    money.Amount
	InFlight   money.Amount // the sum of Pending
	Pending    []Pending    // by number
	LastChange time.Time
	// Value is the balance in the currency that was asked for.
	Value rates.Exchange
	// Repeated says that an Open was done before.
	Repeated bool
}

// Pending is a transfer that has not ended.
type Pending struct {
	Transfer uint64
	To       string
	Amount   money.Amount // as it was debited
}

// The events. Their names in the journal are in AccountType.
type (
	// Cause is in every event that a customer's command led to.
	Cause struct {
		At      time.Time
		Request string `msgpack:",omitempty"`
	}
	// Opened begins an account.
	Opened struct {
		Cause
		Currency money.Currency
		Owner    string
	}
	// Deposited and Withdrawn are what was paid in and out at the counter.
	Deposited struct {
		Cause
		rates.Exchange
	}
	Withdrawn struct {
		Cause
		rates.Exchange
	}
	// TransferStarted debits the source. Transfer is the number of the delivery.
	TransferStarted struct {
		Cause
		rates.Exchange
		Transfer uint64
		To       string
	}
	// TransferCompleted says that the destination has taken the transfer in, and
	// TransferRefunded that it was turned away.
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
	// Credited is a transfer that arrived: Original is what was debited.
	Credited struct {
		At time.Time
		rates.Exchange
		delivery.Header
		From string
	}
	// CreditRefused is a transfer that was turned away. It is an event because
	// the source is refunded for it: a copy of the message that comes late must
	// be refused too, even if the account was opened in between.
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

// Account is the state of an account: what its events have led to. A snapshot
// holds the exported fields.
type Account struct {
	Opened, Closed bool
	Owner          string
	Balance        money.Amount
	Changed        time.Time
	Requests       requests.Memory[Receipt] // what was done already
	Transfers      delivery.Outbox[Credit]  // the transfers that have not ended
	Started        uint64                   // how many there ever were
	InFlight       money.Amount             // what they may bring back
	Credits        delivery.Inbox           // what other accounts have sent

	id    string      `refold:"-"`
	rates rates.Rates `refold:"-"`
}

// AccountType describes accounts to the framework. What an account depends on
// comes in here.
func AccountType(r rates.Rates) eventsourcing.Type[Command, Event] {
	return eventsourcing.Type[Command, Event]{
		Name: AccountTypeName,
		New: func(id string) eventsourcing.Aggregate[Command, Event] {
			return &Account{id: id, rates: r}
		},
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
		Commands: codec.Types(
			codec.Name[Open]("open"),
			codec.Name[Deposit]("deposit"),
			codec.Name[Withdraw]("withdraw"),
			codec.Name[Transfer]("transfer"),
			codec.Name[Close]("close"),
			codec.Name[Lookup]("lookup"),
			codec.Name[Credit]("credit"),
		),
		Snapshots: eventsourcing.SnapshotEvery(100).Keep(2),
	}
}

// HandleCommand decides what a command leads to. It changes nothing.
func (a *Account) HandleCommand(ctx *Ctx, command Command) Effect {
	switch c := command.(type) {
	case Open:
		return a.open(ctx, c)
	case Deposit:
		return a.change(ctx, c.Request, asked("deposit", c.Amount, ""), func(cause Cause) (Event, error) {
			x, err := a.exchange(c.Amount, cause.At)
			if err != nil {
				return nil, err
			}
			return Deposited{cause, x}, a.canHold(x.Amount)
		})
	case Withdraw:
		return a.change(ctx, c.Request, asked("withdraw", c.Amount, ""), func(cause Cause) (Event, error) {
			x, err := a.exchange(c.Amount, cause.At)
			if err != nil {
				return nil, err
			}
			return Withdrawn{cause, x}, a.canPay(x.Amount)
		})
	case Transfer:
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
	case Close:
		return a.change(ctx, c.Request, asked("close", money.Amount{}, ""), func(cause Cause) (Event, error) {
			return Closed{cause}, a.canClose()
		})
	case Lookup:
		view, err := a.View(c.In, ctx.Now())
		if err != nil {
			return ctx.Refuse(err)
		}
		return ctx.Reply(c.With(view))
	case Credit:
		return a.credit(ctx, c)
	}
	return ctx.Unhandled()
}

// open opens the account, once.
func (a *Account) open(ctx *Ctx, c Open) Effect {
	nothing := money.Zero(c.Currency)
	view := View{Owner: c.Owner, Currency: c.Currency, Balance: nothing, InFlight: nothing}
	_, done, err := a.Requests.Check(c.Request, askedOpen(c.Currency, c.Owner))
	same := c.Owner == a.Owner && c.Currency == a.Balance.Currency()
	switch {
	case err != nil:
		return ctx.Refuse(err)
	case done, a.Opened && !a.Closed && same:
		view.Repeated = true
		return ctx.Reply(c.With(view))
	case a.Closed:
		return ctx.Refuse(ErrClosed)
	case a.Opened:
		return ctx.Refuse(ErrOtherTerms)
	case !c.Currency.Known():
		return ctx.Refuse(ErrCurrency)
	}
	return ctx.Persist(Opened{Cause{ctx.Now(), c.Request}, c.Currency, c.Owner}).Reply(c.With(view))
}

// change handles a command that changes the account: once for each request, and
// only while it is open.
func (a *Account) change(ctx *Ctx, request, content string, decide func(Cause) (Event, error)) Effect {
	var reply eventsourcing.For[Command, Receipt]
	first, done, err := a.Requests.Check(request, content)
	switch {
	case err != nil:
		return ctx.Refuse(err)
	case done:
		first.Repeated = true
		return ctx.Reply(reply.With(first))
	case a.Closed:
		return ctx.Refuse(ErrClosed)
	case !a.Opened:
		return ctx.Refuse(ErrNotOpen)
	}
	event, err := decide(Cause{ctx.Now(), request})
	if err != nil {
		return ctx.Refuse(err)
	}
	return ctx.Persist(event).Reply(reply.Answer(func() Receipt { return a.receipt(event) }))
}

// receipt is the answer to a command, right after its event was applied.
func (a *Account) receipt(event Event) Receipt {
	started, _ := event.(TransferStarted)
	return Receipt{Balance: a.Balance, Transfer: started.Transfer}
}

// asked is what a request is compared with when it comes again.
func asked(what string, amount money.Amount, to string) string {
	return what + " " + amount.String() + " " + to
}

func askedOpen(currency money.Currency, owner string) string {
	return asked("open "+string(currency), money.Amount{}, owner)
}

// exchange converts an amount to the account's currency, at the rate of now.
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

// noExchange makes a refusal of the reason why a conversion failed.
func noExchange(err error) error {
	switch {
	case errors.Is(err, money.ErrOverflow):
		return fmt.Errorf("%w: %w", ErrOverflow, err)
	case errors.Is(err, rates.ErrStale):
		return fmt.Errorf("%w: %w", ErrStaleRate, err)
	}
	return fmt.Errorf("%w: %w", ErrNoRate, err)
}

// canHold makes sure that the balance does not overflow, even if every transfer
// comes back.
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

// credit takes in a transfer from another account. It comes at least once and is
// decided once: then it is answered as it was.
func (a *Account) credit(ctx *Ctx, c Credit) Effect {
	if a.Credits.Seen(c.Header) {
		if refusal := a.Credits.Refusal(c.Header); refusal != nil {
			return ctx.Refuse(refusal)
		}
		return ctx.Reply(c.With(Accepted{}))
	}
	x, err := a.accept(c.Amount, ctx.Now())
	refusal, refused := errors.AsType[*eventsourcing.Refusal](err)
	switch {
	case errors.Is(err, ErrNoRate), errors.Is(err, ErrStaleRate):
		// What is no refusal does not end a transfer: it is sent again.
		return ctx.Refuse(errors.New("the transfer waits for a rate: " + err.Error()))
	case refused:
		return ctx.Persist(CreditRefused{ctx.Now(), c.Header, c.From, c.Amount, refusal.Code()}).Refuse(refusal)
	}
	return ctx.Persist(Credited{ctx.Now(), x, c.Header, c.From}).Reply(c.With(Accepted{}))
}

// accept says what a transfer amounts to here, or why it is turned away.
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

// HandleSignal ends a transfer when its destination has answered.
func (a *Account) HandleSignal(ctx *Ctx, signal eventsourcing.Signal) Effect {
	s, ok := signal.(delivery.Answered[Credit])
	if !ok {
		return ctx.Unhandled()
	}
	if refusal, refused := errors.AsType[*eventsourcing.Refusal](s.Err); refused {
		return ctx.Persist(TransferRefunded{ctx.Now(), s.Nr, s.Message.Amount, refusal.Code()})
	}
	return ctx.Persist(TransferCompleted{ctx.Now(), s.Nr, s.Message.Amount})
}

// ApplyEvent changes the state by what has happened, and does nothing else.
func (a *Account) ApplyEvent(event Event) {
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

// View shows the account, and its balance in a further currency if there is one.
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

// sure is for sums that were checked when the event was decided. If one fails
// nevertheless the history is damaged, and there must be no state.
func sure(sum money.Amount, err error) money.Amount {
	if err != nil {
		panic(err)
	}
	return sum
}
