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

type projectCmd struct {
	Database string `placeholder:"ADDRESS" help:"The database of the table: postgres://USER@HOST/DATABASE. Defaults to the database of the journal."`
	Workers  int    `default:"1" help:"Number of concurrent workers: 1, 2, 4 and so on."`
	Once     bool   `help:"Exit when the table contains all events."`
	Rebuild  bool   `help:"Empty the table and fill it again from the first event."`
}

// totalsCmd prints the totals of each day. It computes them from all events and stores nothing.
type totalsCmd struct{}

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
		Criteria: journal.Criteria{Types: []string{AccountTypeName}},
		Events:   AccountType(nil).Events,
		Handler: projection.AtLeastOnce[Event]{
			Store: new(projection.Memory), // totals and offset exist only in memory
			Handle: func(_ context.Context, e projection.Envelope[Event]) error {
				sums.add(&e)
				return nil
			},
		},
		MaxRestarts: -1, // the user can run the command again
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

// dayOf is the key of a total: a day in UTC, and a currency.
type dayOf struct {
	day      string // 2026-03-14
	currency money.Currency
}

// dayTotal is the sum of the events of a day in a currency, in minor units.
type dayTotal struct {
	opened, deposits, withdrawals, transfers          int64
	deposited, withdrawn, debited, credited, refunded big.Int
}

type totals map[dayOf]*dayTotal

// add adds an event. Deposits and withdrawals count in the currency of the cash, transfers in the
// currencies of the accounts.
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

// numeric formats minor units as an SQL number.
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
