// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
)

// statementCmd prints the history of an account. It only reads.
type statementCmd struct {
	Account string    `arg:"" help:"ID of the account."`
	From    beginning `placeholder:"TIME" help:"Start at this time or day."`
	To      moment    `placeholder:"TIME" help:"End at this time, or at the end of this day."`
}

func (c *statementCmd) Run(app *app) error {
	return app.read(func(b *bank) error {
		return b.printStatement(app.ctx, app.stdout, c.Account, c.From.Time, c.To.Time)
	})
}

type statementLine struct {
	Number          uint64
	Time            time.Time
	Event           string
	Change, Balance money.Amount
	Details         string
}

// statement calls line for each event of an account between two times, oldest first. A zero time is
// no bound. An error of line stops the iteration.
func (b *bank) statement(ctx context.Context, id string, from, to time.Time, line func(statementLine) error) error {
	opened := false
	var balance money.Amount
	view, err := eventsourcing.NewView(b.runtime, b.typ, id, eventsourcing.ViewOptions{}, func(v eventsourcing.Viewed[Event]) error {
		l := describe(v.Event)
		l.Number, l.Time = v.SequenceNr, v.Time
		if e, ok := v.Event.(Opened); ok {
			opened, balance = true, money.Zero(e.Currency)
		}
		if !opened {
			return nil // an unopened account has rejected a transfer
		}
		if l.Change == (money.Amount{}) {
			l.Change = money.Zero(balance.Currency())
		}
		var err error
		if balance, err = balance.Add(l.Change); err != nil {
			return err
		}
		if l.Balance = balance; v.Time.Before(from) || !to.IsZero() && v.Time.After(to) {
			return nil
		}
		return line(l)
	})
	if err == nil {
		err = view.Update(ctx)
	}
	if err == nil && !opened {
		err = ErrNotOpen
	}
	return err
}

func describe(event Event) statementLine {
	switch e := event.(type) {
	case Opened:
		return statementLine{Event: "opened", Details: "for " + e.Owner}
	case Deposited:
		return statementLine{Event: "deposited", Change: e.Amount, Details: strings.TrimPrefix(original(e.Exchange), ", ")}
	case Withdrawn:
		return statementLine{Event: "withdrawn", Change: negative(e.Amount), Details: strings.TrimPrefix(original(e.Exchange), ", ")}
	case TransferStarted:
		return statementLine{Event: "transfer started", Change: negative(e.Amount), Details: fmt.Sprintf("transfer %d to %s", e.Transfer, e.To) + original(e.Exchange)}
	case TransferCompleted:
		return statementLine{Event: "transfer completed", Details: fmt.Sprintf("transfer %d", e.Transfer)}
	case TransferRefunded:
		return statementLine{Event: "transfer refunded", Change: e.Amount, Details: fmt.Sprintf("transfer %d: %s", e.Transfer, e.Reason)}
	case Credited:
		return statementLine{Event: "credited", Change: e.Amount, Details: fmt.Sprintf("transfer %d from %s", e.Nr, e.From) + original(e.Exchange)}
	case CreditRefused:
		return statementLine{Event: "credit refused", Details: fmt.Sprintf("transfer %d from %s, %v: %s", e.Nr, e.From, e.Amount, e.Reason)}
	case Closed:
		return statementLine{Event: "closed"}
	}
	return statementLine{Event: fmt.Sprintf("%T", event)}
}

// original formats the amount before a conversion, or returns "" without one.
func original(x rates.Exchange) string {
	if x.Rate == "" {
		return ""
	}
	return ", " + x.Original.String() + rateOf(x)
}

func negative(a money.Amount) money.Amount { return money.New(-a.Minor(), a.Currency()) }

func (b *bank) printStatement(ctx context.Context, w io.Writer, id string, from, to time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printf(tw, "event\ttime\twhat\tchange\tbalance\tdetails\n")
	err := b.statement(ctx, id, from, to, func(l statementLine) error {
		_, err := fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%v\t%s\n", l.Number, l.Time.Format(time.RFC3339), l.Event, l.Change.Decimal(), l.Balance, l.Details)
		return err
	})
	if err != nil {
		return fmt.Errorf("account %s: %w", id, err)
	}
	return tw.Flush()
}
