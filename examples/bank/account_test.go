// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/examples/bank/requests"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	terms := Open{Currency: money.USD, Owner: "Alice"}
	first := do(t, b, "alice", terms)
	if first.Owner != "Alice" || first.Balance != money.Zero(money.USD) || first.Repeated {
		t.Errorf("open: got %+v, want Alice as owner, balance 0.00 USD and Repeated false", first)
	}
	if again := do(t, b, "alice", terms); !again.Repeated || again.Balance != first.Balance {
		t.Errorf("repeated open: got %+v, want Repeated and the same balance", again)
	}
	refused(t, b, "alice", ErrOtherTerms, Open{Currency: money.TWD, Owner: "Alice"})
	refused(t, b, "alice", ErrOtherTerms, Open{Currency: money.USD, Owner: "Mallory"})
	refused(t, b, "bob", ErrCurrency, Open{Currency: "EUR"})
	refused(t, b, "bob", ErrCurrency, Open{})
	if got := names(t, b, "alice"); got != "Opened" {
		t.Errorf("events: %s, want Opened", got)
	}
}

func TestDepositAndWithdraw(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	open(t, b, "alice TWD")
	for _, c := range []struct {
		command eventsourcing.Request[Account, Receipt]
		want    string
	}{
		{Deposit{Amount: twd("100")}, "100.00"},
		{Deposit{Amount: usd("10")}, "421.50"},   // 10.00 USD are 321.50 TWD
		{Deposit{Amount: usd("0.01")}, "421.82"}, // 0.3215 TWD are rounded to 0.32
		{Withdraw{Amount: twd("21.82")}, "400.00"},
		{Withdraw{Amount: usd("1")}, "367.85"}, // 1.00 USD are 32.15 TWD
		{Withdraw{Amount: twd("367.85")}, "0.00"},
	} {
		if got := do(t, b, "alice", c.command); got != (Receipt{Balance: twd(c.want)}) {
			t.Errorf("%+v: got %+v, want the balance %s", c.command, got, c.want)
		}
	}
	audited(t, b)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBank(t, oneWay)
	open(t, b, "alice TWD", "bob USD", "carol TWD", "gone USD")
	do(t, b, "alice", Deposit{Amount: twd("100")})
	do(t, b, "bob", Deposit{Amount: usd("1")})
	do(t, b, "gone", Close{})
	before := names(t, b, "alice")
	most := money.New(math.MaxInt64, money.TWD)
	for _, c := range []struct {
		id      string
		command eventsourcing.Request[Account, Receipt]
		want    error
	}{
		{"nobody", Deposit{Amount: usd("1")}, ErrNotOpen},
		{"nobody", Withdraw{Amount: usd("1")}, ErrNotOpen},
		{"nobody", Transfer{Amount: usd("1"), To: "alice"}, ErrNotOpen},
		{"nobody", Close{}, ErrNotOpen},
		{"gone", Deposit{Amount: usd("1")}, ErrClosed},
		{"gone", Withdraw{Amount: usd("1")}, ErrClosed},
		{"gone", Transfer{Amount: usd("1"), To: "alice"}, ErrClosed},
		{"gone", Close{}, ErrClosed},
		{"alice", Deposit{Amount: twd("0")}, ErrNotPositive},
		{"alice", Deposit{Amount: twd("-1")}, ErrNotPositive},
		{"alice", Withdraw{Amount: usd("-1")}, ErrNotPositive},
		{"alice", Transfer{Amount: twd("-1"), To: "bob"}, ErrNotPositive},
		{"alice", Deposit{}, ErrCurrency},
		{"alice", Deposit{Amount: money.New(100, "EUR")}, ErrCurrency},
		{"alice", Withdraw{Amount: twd("100.01")}, ErrInsufficient},
		{"alice", Withdraw{Amount: usd("4")}, ErrInsufficient},
		{"alice", Transfer{Amount: twd("100.01"), To: "bob"}, ErrInsufficient},
		{"alice", Transfer{Amount: twd("1"), To: "alice"}, ErrToItself},
		{"alice", Transfer{Amount: twd("1"), To: ""}, ErrDestination},
		{"alice", Transfer{Amount: twd("1"), To: "  "}, ErrDestination},
		{"alice", Transfer{Amount: twd("1"), To: strings.Repeat("x", 505)}, ErrDestination},
		{"alice", Deposit{Amount: most}, ErrOverflow},
		{"alice", Deposit{Amount: money.New(math.MaxInt64, money.USD)}, ErrOverflow},
		{"alice", Close{}, ErrNotEmpty},
		{"bob", Deposit{Amount: twd("100")}, ErrNoRate},
		{"bob", Withdraw{Amount: twd("1")}, ErrNoRate},
		{"alice", Deposit{Request: strings.Repeat("x", 201), Amount: twd("1")}, requests.ErrTooLong},
	} {
		refused(t, b, c.id, c.want, c.command)
	}
	refused(t, b, "nobody", ErrNotOpen, Lookup{})
	refused(t, b, "bob", ErrCurrency, Lookup{In: "EUR"})
	refused(t, b, "alice", ErrNoRate, Lookup{In: money.USD})
	refused(t, b, "gone", ErrClosed, Open{Currency: money.USD, Owner: "owner of gone"})
	if after := names(t, b, "alice"); after != before {
		t.Errorf("after refusals the account alice has the events %s, want %s", after, before)
	}
	if got := names(t, b, "nobody"); got != "" {
		t.Errorf("after refusals the account nobody has the events %s, want none", got)
	}
	audited(t, b)
}

func TestRefusalsOfRates(t *testing.T) {
	t.Parallel()
	b := newBank(t, `{"rates": [{"pair": "USD/TWD", "rate": "0.0001"}, {"pair": "TWD/USD", "rate": "-1"}]}`)
	open(t, b, "alice TWD", "bob USD")
	refused(t, b, "alice", ErrTooSmall, Deposit{Amount: usd("1")})
	refused(t, b, "bob", ErrNoRate, Deposit{Amount: twd("1")})
	s := newStore(t, "inmem:")
	stale, err := openBank(s, parseRates(t, testRates).WithMaxAge(time.Minute), nil, eventsourcing.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	open(t, stale, "alice TWD")
	refused(t, stale, "alice", ErrStaleRate, Deposit{Amount: usd("1")})
	do(t, stale, "alice", Deposit{Amount: twd("1")})
	stopBank(t, stale)
}

// The event contains all data that the audit needs, and that a replay without rates needs.
func TestConversionIsRecorded(t *testing.T) {
	t.Parallel()
	s := newStore(t, "inmem:")
	b := startBank(t, s, testRates)
	open(t, b, "alice TWD")
	do(t, b, "alice", Deposit{Amount: usd("100"), Request: "r1"})
	events := history(t, b, "alice")
	got, _ := events[1].event.(Deposited)
	want := rates.Exchange{
		Original: usd("100"), Amount: twd("3215"), Rate: "32.15", Rounding: "half-even",
		Source: "test", AsOf: time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC),
	}
	if got.Exchange != want || got.Request != "r1" || got.At.IsZero() {
		t.Errorf("got %+v, want %+v", got, want)
	}
	stopBank(t, b)

	b = startBank(t, s, `{}`) // without any rates
	balance(t, b, "alice", twd("3215"))
	stopBank(t, b)
}

func TestLookup(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	open(t, b, "alice USD")
	do(t, b, "alice", Deposit{Amount: usd("100")})
	view := do(t, b, "alice", Lookup{In: money.TWD})
	if view.Balance != usd("100") || view.Value.Amount != twd("3215") || view.Value.Rate != "32.15" || view.Closed || view.Owner != "owner of alice" {
		t.Errorf("lookup: got %+v, want balance 100 USD and value 3215 TWD at 32.15", view)
	}
	last, _ := history(t, b, "alice")[1].event.(Deposited)
	if !view.LastChange.Equal(last.At) {
		t.Errorf("last change %v, want %v", view.LastChange, last.At)
	}
	if names(t, b, "alice") != "Opened Deposited" {
		t.Error("the history of alice after a lookup is not Opened Deposited")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	open(t, b, "alice USD")
	do(t, b, "alice", Deposit{Amount: usd("1")})
	do(t, b, "alice", Withdraw{Amount: usd("1")})
	first := do(t, b, "alice", Close{Request: "bye"})
	if first != (Receipt{Balance: usd("0")}) {
		t.Errorf("close: got %+v, want balance 0.00 USD", first)
	}
	if again := do(t, b, "alice", Close{Request: "bye"}); !again.Repeated {
		t.Errorf("repeated close: got %+v, want Repeated", again)
	}
	if view := do(t, b, "alice", Lookup{}); !view.Closed {
		t.Errorf("lookup after close: got %+v, want Closed", view)
	}
	audited(t, b)
}

// A retry has no second effect and receives the first reply, also after a restart and after many
// other requests.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := newStore(t, "inmem:")
	b := startBank(t, s, testRates)
	open(t, b, "alice USD", "bob USD")
	first := do(t, b, "alice", Deposit{Request: "d", Amount: usd("100")})
	do(t, b, "alice", Withdraw{Request: "w", Amount: usd("1")})
	sent := do(t, b, "alice", Transfer{Request: "t", Amount: usd("5"), To: "bob"})
	if sent.Transfer != 1 || sent.Balance != usd("94") {
		t.Errorf("transfer: got %+v, want transfer 1 and balance 94.00 USD", sent)
	}
	settled(t, b, "alice")
	for i := range 150 { // more events than the snapshot interval
		do(t, b, "alice", Deposit{Request: fmt.Sprint("r", i), Amount: usd("1")})
	}
	check := func() {
		t.Helper()
		for _, c := range []struct {
			command eventsourcing.Request[Account, Receipt]
			want    Receipt
		}{
			{Deposit{Request: "d", Amount: usd("100")}, Receipt{Balance: first.Balance, Repeated: true}},
			{Withdraw{Request: "w", Amount: usd("1")}, Receipt{Balance: usd("99"), Repeated: true}},
			{Transfer{Request: "t", Amount: usd("5"), To: "bob"}, Receipt{Balance: usd("94"), Transfer: 1, Repeated: true}},
		} {
			if got := do(t, b, "alice", c.command); got != c.want {
				t.Errorf("repeated %+v: got %+v, want %+v", c.command, got, c.want)
			}
		}
		refused(t, b, "alice", requests.ErrReused, Deposit{Request: "d", Amount: usd("100.01")})
		refused(t, b, "alice", requests.ErrReused, Deposit{Request: "d", Amount: twd("100")})
		refused(t, b, "alice", requests.ErrReused, Withdraw{Request: "d", Amount: usd("100")})
		refused(t, b, "alice", requests.ErrReused, Transfer{Request: "t", Amount: usd("5"), To: "carol"})
		refused(t, b, "alice", requests.ErrReused, Close{Request: "t"})
		balance(t, b, "alice", usd("244"))
	}
	check()
	stopBank(t, b)
	b = startBank(t, s, testRates)
	check()
	audited(t, b)
	stopBank(t, b)
}

// A refusal is not stored: the same request may succeed later, also with other content.
func TestRefusedRequestIsDecidedAgain(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	open(t, b, "alice USD")
	refused(t, b, "alice", ErrInsufficient, Withdraw{Request: "w", Amount: usd("5")})
	do(t, b, "alice", Deposit{Amount: usd("5")})
	if got := do(t, b, "alice", Withdraw{Request: "w", Amount: usd("3")}); got.Repeated {
		t.Errorf("retry of a refused request: got %+v, want Repeated false", got)
	}
}

func TestOpenWithRequestID(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	do(t, b, "alice", Open{Request: "o", Currency: money.USD})
	refused(t, b, "alice", requests.ErrReused, Open{Request: "o", Currency: money.TWD})
	refused(t, b, "alice", requests.ErrReused, Deposit{Request: "o", Amount: usd("1")})
	do(t, b, "alice", Close{})
	if again := do(t, b, "alice", Open{Request: "o", Currency: money.USD}); !again.Repeated {
		t.Errorf("repeated open of a closed account: got %+v, want Repeated", again)
	}
}

// The balance leaves room for the refund of each pending transfer.
func TestBalanceLeavesRoomForRefunds(t *testing.T) {
	t.Parallel()
	b := newBank(t, oneWay)
	open(t, b, "alice TWD", "bob USD")
	most := money.New(math.MaxInt64, money.TWD)
	do(t, b, "alice", Deposit{Amount: most})
	do(t, b, "alice", Transfer{Amount: twd("10"), To: "bob"}) // the transfer waits for a rate
	refused(t, b, "alice", ErrOverflow, Deposit{Amount: twd("0.01")})
	do(t, b, "alice", Withdraw{Amount: twd("0.01")})
	do(t, b, "alice", Deposit{Amount: twd("0.01")})
	audited(t, b)
}

// A replay from a snapshot and a replay from the first event give the same state.
func TestSnapshotIsComplete(t *testing.T) {
	t.Parallel()
	b := newBank(t, oneWay)
	open(t, b, "alice TWD", "bob USD", "carol TWD")
	do(t, b, "alice", Deposit{Amount: twd("1000")})
	for i := range 90 {
		to := []string{"bob", "carol", "nobody"}[i%3] // a transfer to bob waits, one to carol is credited, one to nobody is refunded
		do(t, b, "alice", Transfer{Request: id(i), Amount: twd("1"), To: to})
	}
	await(t, b, "alice", "30 pending transfers", func(v View) bool { return len(v.Pending) == 30 })
	awaitSnapshot(t, b, "alice")
	encoded := func(opts eventsourcing.FoldOptions[Event], snapshots bool) string {
		folded, err := eventsourcing.Fold(t.Context(), b.runtime, b.typ, "alice", opts)
		if err != nil || (folded.SnapshotNr > 0) != snapshots {
			t.Fatalf("Fold used snapshot %d, error %v; want a snapshot: %v", folded.SnapshotNr, err, snapshots)
		}
		account := folded.State
		data, err := stateOf(account)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	with, without := encoded(eventsourcing.FoldOptions[Event]{}, true), encoded(eventsourcing.FoldOptions[Event]{DisableSnapshots: true}, false)
	if with != without {
		t.Errorf("the state with snapshots is\n%q\nwithout snapshots\n%q\nwant equal states", with, without)
	}
	audited(t, b)
}

func TestFoldOfDamagedHistory(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	open(t, b, "alice TWD")
	do(t, b, "alice", Deposit{Amount: twd("5")})
	_, err := eventsourcing.Fold(t.Context(), b.runtime, b.typ, "alice", eventsourcing.FoldOptions[Event]{
		Replace: func(nr uint64, event Event) []Event {
			if nr == 2 {
				return []Event{Deposited{Exchange: rates.Exchange{Amount: usd("5")}}}
			}
			return []Event{event}
		},
	})
	if panicked, ok := errors.AsType[*eventsourcing.PanicError](err); !ok || panicked.PersistenceID != "account|alice" {
		t.Errorf("got the error %v, want a PanicError for account|alice", err)
	}
}
