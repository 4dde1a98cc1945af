// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
)

// projectCmd keeps a table of totals up to date in PostgreSQL.
type projectCmd struct {
	Database string `placeholder:"ADDRESS" help:"Where the table is: postgres://USER@HOST/DATABASE. Defaults to the database of the journal."`
	Workers  int    `default:"1" help:"How many handle events side by side: 1, 2, 4 and so on."`
	Once     bool   `help:"End when all events are in the table."`
	Rebuild  bool   `help:"Empty the table first, and fill it from the first event on."`
}

// totalsCmd prints the totals of each day. It only reads, and keeps nothing.
type totalsCmd struct{}

// Run executes the command.
func (c *totalsCmd) Run(app *app) (err error) {
	s, err := openStore(app.ctx, app.flags.Journal, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	sums := make(totals)
	p, err := projection.New(projection.Config[Event]{
		Name:     "totals",
		Journal:  s.Journal(),
		Criteria: journal.Criteria{Type: AccountTypeName},
		Events:   AccountType(nil).Events,
		Handler: projection.AtLeastOnce[Event]{
			Store: new(projection.Memory), // the totals are in memory, and so is how far they go
			Handle: func(_ context.Context, e projection.Envelope[Event]) error {
				sums.add(&e)
				return nil
			},
		},
		MaxRestarts: -1, // it only reads: who asked may ask again
		Logger:      app.logger,
	})
	if err != nil {
		return err
	}
	if err := p.CatchUp(app.ctx); err != nil {
		return err
	}
	sums.print(app.stdout)
	return nil
}

// dayOf is what totals are kept by: a day, in UTC, and a currency.
type dayOf struct {
	day      string // 2026-03-14
	currency money.Currency
}

// dayTotal is what happened on a day in a currency, in minor units.
type dayTotal struct {
	opened, deposits, withdrawals, transfers          int64
	deposited, withdrawn, debited, credited, refunded big.Int
}

// totals are what events add up to.
type totals map[dayOf]*dayTotal

// add counts an event. Deposits and withdrawals count in the currency in which
// they were made, transfers in those of the accounts.
func (t totals) add(e *projection.Envelope[Event]) {
	on := func(c money.Currency) *dayTotal {
		key := dayOf{e.Time.Format(time.DateOnly), c}
		if t[key] == nil {
			t[key] = new(dayTotal)
		}
		return t[key]
	}
	switch event := e.Event.(type) {
	case Opened:
		on(event.Currency).opened++
	case Deposited:
		d := on(event.Original.Currency())
		d.deposits++
		add(&d.deposited, event.Original)
	case Withdrawn:
		d := on(event.Original.Currency())
		d.withdrawals++
		add(&d.withdrawn, event.Original)
	case TransferStarted:
		d := on(event.Amount.Currency())
		d.transfers++
		add(&d.debited, event.Amount)
	case Credited:
		add(&on(event.Amount.Currency()).credited, event.Amount)
	case TransferRefunded:
		add(&on(event.Amount.Currency()).refunded, event.Amount)
	}
}

// keys returns the days in order.
func (t totals) keys() []dayOf {
	return slices.SortedFunc(maps.Keys(t), func(a, b dayOf) int {
		return cmp.Or(strings.Compare(a.day, b.day), strings.Compare(string(a.currency), string(b.currency)))
	})
}

// columns returns the totals as the parameters of addTotals.
func (t totals) columns() []any {
	var days, currencies, deposited, withdrawn, debited, credited, refunded []string
	var opened, deposits, withdrawals, transfers []int64
	for _, k := range t.keys() {
		d := t[k]
		days, currencies = append(days, k.day), append(currencies, string(k.currency))
		opened, transfers = append(opened, d.opened), append(transfers, d.transfers)
		deposits, deposited = append(deposits, d.deposits), append(deposited, numeric(&d.deposited))
		withdrawals, withdrawn = append(withdrawals, d.withdrawals), append(withdrawn, numeric(&d.withdrawn))
		debited, credited, refunded = append(debited, numeric(&d.debited)), append(credited, numeric(&d.credited)), append(refunded, numeric(&d.refunded))
	}
	return []any{days, currencies, opened, deposits, deposited, withdrawals, withdrawn, transfers, debited, credited, refunded}
}

// numeric writes a number of minor units as SQL does.
func numeric(minor *big.Int) string { return strings.ReplaceAll(decimal(minor), ",", "") }

func (t totals) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	printf(tw, "day\tcurrency\topened\tdeposits\tdeposited\twithdrawals\twithdrawn\ttransfers\tdebited\tcredited\trefunded\t\n")
	for _, k := range t.keys() {
		d := t[k]
		printf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", k.day, k.currency, thousands(d.opened), thousands(d.deposits), decimal(&d.deposited),
			thousands(d.withdrawals), decimal(&d.withdrawn), thousands(d.transfers), decimal(&d.debited), decimal(&d.credited), decimal(&d.refunded))
	}
	_ = tw.Flush()
}
