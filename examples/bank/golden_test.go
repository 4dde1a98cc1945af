// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"testing"
	"time"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing/eventsourcingtest"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
)

var update = flag.Bool("update", false, "add golden files")

// The data that each release of the bank has stored is still readable, with the same meaning. When
// an event or the account changes, run this test with -update and review the difference.
func TestGolden(t *testing.T) {
	t.Parallel()
	table := parseRates(t, testRates)
	at := time.Date(2026, time.July, 2, 9, 30, 0, 250_000_000, time.UTC)
	cause := Cause{At: at, Request: "r-1"}
	same := rates.Exchange{Original: usd("12.50"), Amount: usd("12.50")}
	converted, err := rates.Convert(table, usd("10"), money.TWD, at)
	if err != nil {
		t.Fatal(err)
	}
	header := delivery.Header{Sender: "account|zoe#Transfers", Nr: 7, Floor: 5}
	events := []Event{
		Opened{cause, money.USD, "ann"},
		Deposited{Cause{At: at}, same},
		Deposited{cause, converted},
		Withdrawn{cause, same},
		TransferStarted{cause, same, 3, "bob"},
		TransferCompleted{at, 3, usd("12.50")},
		TransferRefunded{at, 4, usd("0.01"), "bank/closed"},
		Credited{at, converted, header, "zoe"},
		CreditRefused{at, delivery.Header{Sender: header.Sender, Nr: 8, Floor: 5}, "zoe", usd("1"), "bank/not_open"},
		Closed{cause},
	}
	typ := AccountType(table)
	state := typ.New("ann")
	for _, e := range append(events[:1:1], // an account with all kinds of data
		Deposited{Cause{At: at, Request: "r-2"}, rates.Exchange{Original: usd("100"), Amount: usd("100")}},
		TransferStarted{Cause{At: at, Request: "r-3"}, same, 1, "bob"}, events[7], events[8]) {
		if e, ok := e.(Credited); ok { // a credit in the currency of the account, without a conversion
			e.Exchange = same
			state.apply(e)
			continue
		}
		state.apply(e)
	}
	eventsourcingtest.Golden(t, typ, eventsourcingtest.GoldenConfig[Account, Event]{
		Update: *update, Events: events, ID: "ann",
		States: []*Account{typ.New("ann"), state},
	})
}
