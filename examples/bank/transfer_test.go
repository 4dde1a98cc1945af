// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
)

func TestTransfer(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	open(t, b, "alice USD", "bob TWD")
	do(t, b, "alice", Deposit{Amount: usd("100")})
	got := do(t, b, "alice", Transfer{Amount: twd("1000"), To: "bob"}) // 31.00 USD at the source
	if got != (Receipt{Balance: usd("69"), Transfer: 1}) {
		t.Errorf("transfer: got %+v, want transfer 1 and balance 69.00 USD", got)
	}
	settled(t, b, "alice")
	balance(t, b, "alice", usd("69"))
	balance(t, b, "bob", twd("996.65")) // 31.00 USD at the destination's rate
	if got := names(t, b, "alice"); got != "Opened Deposited TransferStarted TransferCompleted" {
		t.Errorf("events of alice: %s, want Opened, Deposited, TransferStarted and TransferCompleted", got)
	}
	credited, _ := history(t, b, "bob")[1].event.(Credited)
	if credited.Original != usd("31") || credited.Amount != twd("996.65") || credited.Rate != "32.15" || credited.From != "alice" {
		t.Errorf("credited event: %+v, want 31.00 USD from alice as 996.65 TWD at 32.15", credited)
	}
	report := audited(t, b)
	if report.completed != 1 || report.inFlight != 0 {
		t.Errorf("audit: got %+v, want 1 completed transfer", report)
	}
}

func TestRejectedTransferIsRefunded(t *testing.T) {
	t.Parallel()
	b := newBank(t, `{"source": "test", "rates": [{"pair": "USD/TWD", "rate": "0.0001"}]}`)
	open(t, b, "alice USD", "gone USD", "full USD", "poor TWD")
	do(t, b, "gone", Close{})
	do(t, b, "full", Deposit{Amount: money.New(1<<63-1, money.USD)})
	do(t, b, "alice", Deposit{Amount: usd("100")})
	for to, reason := range map[string]string{
		"nobody": "bank/not_open", "gone": "bank/closed", "full": "bank/overflow", "poor": "bank/too_small",
	} {
		sent := do(t, b, "alice", Transfer{Amount: usd("10"), To: to})
		if sent.Balance != usd("90") {
			t.Errorf("transfer to %s: balance %v, want 90.00 USD", to, sent.Balance)
		}
		if view := settled(t, b, "alice"); view.Balance != usd("100") || !view.InFlight.IsZero() {
			t.Errorf("transfer to %s: the source is %+v, want the balance 100.00 and nothing in flight", to, view)
		}
		events := history(t, b, "alice")
		if last, _ := events[len(events)-1].event.(TransferRefunded); last.Reason != reason || last.Transfer != sent.Transfer || last.Amount != usd("10") {
			t.Errorf("transfer to %s: the last event is %+v, want a refund of transfer %d for %s", to, last, sent.Transfer, reason)
		}
	}
	if report := audited(t, b); report.refunded != 4 {
		t.Errorf("audit: got %+v, want 4 refunded transfers", report)
	}
}

// credit is a delivery, as the outbox of an account sends it.
func credit(from string, nr, floor uint64, amount money.Amount) Credit {
	return Credit{Header: delivery.Header{Sender: "account|" + from + "#Transfers", Nr: nr, Floor: floor}, From: from, Amount: amount}
}

func TestCreditCountsOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t, "inmem:")
	b := startBank(t, s, testRates)
	open(t, b, "bob USD")
	for range 3 {
		do(t, b, "bob", credit("alice", 2, 1, usd("5")))
	}
	do(t, b, "bob", credit("alice", 1, 1, usd("5")))
	do(t, b, "bob", credit("zoe", 1, 1, usd("5")))
	balance(t, b, "bob", usd("15"))
	stopBank(t, b)
	b = startBank(t, s, testRates)
	do(t, b, "bob", credit("alice", 2, 1, usd("5")))
	do(t, b, "bob", credit("alice", 3, 4, usd("5"))) // no sender waits for this credit
	balance(t, b, "bob", usd("20"))
	do(t, b, "bob", credit("alice", 1, 1, usd("5")))
	balance(t, b, "bob", usd("20"))
	stopBank(t, b)
}

// A copy of a refused credit may arrive after the account was opened. The source has received the
// refund before.
func TestRefusedCreditStaysRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, "inmem:")
	b := startBank(t, s, testRates)
	refused(t, b, "bob", ErrNotOpen, credit("alice", 1, 1, usd("5")))
	open(t, b, "bob USD")
	refused(t, b, "bob", ErrNotOpen, credit("alice", 1, 1, usd("5")))
	do(t, b, "bob", credit("alice", 2, 1, usd("5")))
	balance(t, b, "bob", usd("5"))
	stopBank(t, b)
	b = startBank(t, s, testRates)
	refused(t, b, "bob", ErrNotOpen, credit("alice", 1, 1, usd("5")))
	balance(t, b, "bob", usd("5"))
	if got := names(t, b, "bob"); got != "CreditRefused Opened Credited" {
		t.Errorf("events of bob: %s, want CreditRefused, Opened and Credited", got)
	}
	stopBank(t, b)
}

func TestTransferWaitsForRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var table changing
		table.set(parseRates(t, oneWay))
		s := newStore(t, "inmem:")
		b, err := openBank(s, &table, nil, eventsourcing.Observer{})
		if err != nil {
			t.Fatal(err)
		}
		open(t, b, "alice TWD", "bob USD")
		do(t, b, "alice", Deposit{Amount: twd("100")})
		do(t, b, "alice", Transfer{Amount: twd("100"), To: "bob"})
		refused(t, b, "alice", ErrPending, Close{})
		time.Sleep(time.Hour)
		synctest.Wait()
		view := do(t, b, "alice", Lookup{})
		if len(view.Pending) != 1 || view.Pending[0] != (Pending{1, "bob", twd("100")}) || view.InFlight != twd("100") || !view.Balance.IsZero() {
			t.Errorf("lookup before the rate: %+v, want 100.00 TWD pending and in flight, and a zero balance", view)
		}
		if got := names(t, b, "bob"); got != "Opened" {
			t.Errorf("events of bob: %s, want Opened", got)
		}
		if report := audited(t, b); report.inFlight != 1 {
			t.Errorf("audit: got %+v, want 1 transfer in flight", report)
		}
		table.set(parseRates(t, testRates))
		time.Sleep(10 * time.Second) // the transfer is resent
		synctest.Wait()
		balance(t, b, "bob", usd("3.10"))
		if view := do(t, b, "alice", Lookup{}); len(view.Pending) != 0 {
			t.Errorf("lookup after the rate: %+v, want no pending transfer", view)
		}
		do(t, b, "alice", Close{})
		audited(t, b)
		stopBank(t, b)
	})
}

// A transfer that was debited before a crash is credited after the crash, also if the destination
// had not answered.
func TestTransferSurvivesCrash(t *testing.T) {
	t.Parallel()
	s := newStore(t, "inmem:")
	b := startBank(t, s, oneWay)
	open(t, b, "alice TWD", "bob USD")
	do(t, b, "alice", Deposit{Amount: twd("100")})
	for range 3 {
		do(t, b, "alice", Transfer{Amount: twd("10"), To: "bob"})
	}
	stopBank(t, b)

	b = startBank(t, s, testRates)
	settled(t, b, "alice") // the lookup starts the account
	balance(t, b, "alice", twd("70"))
	balance(t, b, "bob", usd("0.93"))
	if n := countEvents[Credited](t, b, "bob"); n != 3 {
		t.Errorf("bob was credited %d times, want 3", n)
	}
	audited(t, b)
	stopBank(t, b)
}

// All accounts send to all others. No money is created or lost.
func TestManyTransfersAtOnce(t *testing.T) {
	t.Parallel()
	b := newBank(t, `{"source": "test", "rates": [{"pair": "USD/TWD", "rate": "32"}, {"pair": "TWD/USD", "rate": "0.03125"}]}`)
	const accounts, rounds = 10, 20
	for i := range accounts {
		open(t, b, id(i)+" "+string(money.Currencies()[i%2]))
		do(t, b, id(i), Deposit{Amount: usd("1000")})
	}
	errs := make(chan error)
	for i := range accounts {
		go func() {
			var all error
			for round := range rounds {
				_, err := eventsourcing.Ask(t.Context(), b.account(id(i)), Transfer{Amount: usd("1"), To: id((i + 1 + round%(accounts-1)) % accounts), Request: fmt.Sprint(round)})
				all = errors.Join(all, err)
			}
			errs <- all
		}()
	}
	for range accounts {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	sum := money.Zero(money.USD)
	for i := range accounts {
		settled(t, b, id(i))
	}
	for i := range accounts {
		view := do(t, b, id(i), Lookup{In: money.USD})
		value := view.Balance
		if view.Currency == money.TWD {
			value = view.Value.Amount
		}
		var err error
		if sum, err = sum.Add(value); err != nil {
			t.Fatal(err)
		}
	}
	if sum != usd("10000") {
		t.Errorf("the balances add up to %v, want 10000.00 USD", sum)
	}
	if report := audited(t, b); report.completed != accounts*rounds {
		t.Errorf("audit: got %+v, want %d completed transfers", report, accounts*rounds)
	}
}

// changing is a table of rates that a test replaces.
type changing struct{ table atomic.Pointer[rates.Table] }

func (c *changing) set(t *rates.Table) { c.table.Store(t) }

func (c *changing) Quote(from, to money.Currency, at time.Time) (rates.Quote, error) {
	return c.table.Load().Quote(from, to, at)
}

// After a crash, Wake starts the sources of pending transfers, and no other accounts.
func TestWake(t *testing.T) {
	t.Parallel()
	s := newStore(t, "inmem:")
	b := startBank(t, s, oneWay)
	open(t, b, "alice TWD", "bob USD", "carol TWD")
	do(t, b, "alice", Deposit{Amount: twd("100")})
	do(t, b, "alice", Transfer{Amount: twd("10"), To: "bob"})
	do(t, b, "carol", Deposit{Amount: twd("100")})
	do(t, b, "carol", Transfer{Amount: twd("10"), To: "alice"})
	settled(t, b, "carol")
	stopBank(t, b)

	b = startBank(t, s, testRates)
	if n, err := b.wake(t.Context()); n != 1 || err != nil {
		t.Errorf("Wake started %d accounts, error %v; want 1", n, err)
	}
	await(t, b, "bob", "the transfer", func(v View) bool { return v.Balance == usd("0.31") })
	if n := b.runtime.Resident()[AccountTypeName]; n != 2 {
		t.Errorf("%d accounts run after Wake, want 2", n)
	}
	stopBank(t, b)
}
