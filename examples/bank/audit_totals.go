// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
)

// total is the books of one currency, in minor units:
//
//	accounts + in flight + desk = deposits - withdrawals
//
// The two sides have nothing in common. Deposits and withdrawals are what came
// in and went out at the counter, in the currency in which it did. Accounts are
// what the accounts answer, in flight is what was debited and neither credited
// nor refunded, and the desk is what it must have taken in and paid out at the
// recorded rates, whatever the events say that it did.
type total struct {
	deposits, withdrawals, accounts, inFlight, desk big.Int
}

// difference is what is missing from the right side, zero if the books balance.
func (t *total) difference() *big.Int {
	var d big.Int
	d.Add(&t.accounts, &t.inFlight)
	d.Add(&d, &t.desk)
	d.Sub(&d, &t.deposits)
	return d.Add(&d, &t.withdrawals)
}

func (t *total) deposit(a money.Amount)  { add(&t.deposits, a) }
func (t *total) withdraw(a money.Amount) { add(&t.withdrawals, a) }

func add(sum *big.Int, a money.Amount) { sum.Add(sum, big.NewInt(a.Minor())) }

// moved enters an amount at the counter.
func (a *auditor) moved(amount money.Amount, enter func(*total, money.Amount)) {
	if t := a.report.totals[amount.Currency()]; t != nil {
		enter(t, amount)
	}
}

// desk enters what the exchange desk took in and paid out, if it had to do with
// it.
func (a *auditor) desk(in, out money.Amount) {
	if in.Currency() == out.Currency() {
		return
	}
	if t := a.report.totals[in.Currency()]; t != nil {
		t.desk.Add(&t.desk, big.NewInt(in.Minor()))
	}
	if t := a.report.totals[out.Currency()]; t != nil {
		t.desk.Sub(&t.desk, big.NewInt(out.Minor()))
	}
}

// exchangedOr computes a conversion again; where that can't be done it believes
// the event, which is a violation of its own.
func exchangedOr(x rates.Exchange, to money.Currency) money.Amount {
	if amount, err := exchanged(x, to); err == nil {
		return amount
	}
	return x.Amount
}

// closeTotals checks that the books of each currency balance.
func (a *auditor) closeTotals() {
	for _, c := range money.Currencies() {
		t := a.report.totals[c]
		if d := t.difference(); d.Sign() != 0 {
			a.violate("totals", fmt.Sprintf("%s: accounts %s + in flight %s + desk %s differ from deposits %s - withdrawals %s by %s", c,
				decimal(&t.accounts), decimal(&t.inFlight), decimal(&t.desk), decimal(&t.deposits), decimal(&t.withdrawals), decimal(d)))
		}
	}
}

// decimal writes a number of minor units, with commas.
func decimal(minor *big.Int) string {
	text, sign := new(big.Int).Abs(minor).String(), ""
	if minor.Sign() < 0 {
		sign = "-"
	}
	if len(text) <= money.Digits {
		text = strings.Repeat("0", money.Digits+1-len(text)) + text
	}
	whole, fraction := text[:len(text)-money.Digits], text[len(text)-money.Digits:]
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return sign + whole + "." + fraction
}
