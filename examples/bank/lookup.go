// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
)

// lookupCmd prints an account. It only reads.
type lookupCmd struct {
	Account string   `arg:"" help:"ID of the account."`
	AtSeq   *uint64  `placeholder:"N" help:"The state after event N of the account."`
	AtTime  moment   `placeholder:"TIME" help:"The state at a time, such as 2026-07-01T12:00:00Z; a date means the end of that day in UTC."`
	Without []uint64 `placeholder:"N" help:"The state without event N of the account."`
	In      string   `placeholder:"CURRENCY" help:"Also show the balance in this currency."`
}

func (c *lookupCmd) Run(app *app) error {
	if c.AtSeq == nil {
		c.AtSeq = new(uint64)
	} else if *c.AtSeq == 0 {
		return usageError(errors.New("--at-seq 0: 0 is not an event number"))
	}
	in, err := parseIn(c.In)
	if err != nil {
		return usageError(fmt.Errorf("--in: %w", err))
	}
	return app.read(func(b *bank) error {
		seen, err := b.lookup(app.ctx, c.Account, pastOf(*c.AtSeq, c.AtTime.Time, c.Without), in)
		if err != nil {
			return fmt.Errorf("account %s: %w", c.Account, err)
		}
		seen.print(app.stdout, c.Account)
		return nil
	})
}

// parseIn parses the code of an additional currency for a balance. An empty code selects none.
func parseIn(code string) (money.Currency, error) {
	if code == "" {
		return "", nil
	}
	return money.ParseCurrency(code)
}

// pastOf selects a state. Zero values select the present state.
func pastOf(atSeq uint64, atTime time.Time, without []uint64) eventsourcing.FoldOptions[Event] {
	opts := eventsourcing.FoldOptions[Event]{UpTo: atSeq, AsOf: atTime}
	if len(without) > 0 {
		opts.Replace = leaveOut(without)
	}
	return opts
}

// leaveOut returns a function that removes events. If it removes the start of a transfer, it sets
// the amount of the transfer to zero, so that other transfers keep their numbers. If it removes the
// opening of the account, it removes all events.
func leaveOut(numbers []uint64) func(uint64, Event) []Event {
	transfers := make(map[uint64]bool)
	neverOpened := false
	return func(number uint64, event Event) []Event {
		out := slices.Contains(numbers, number)
		switch e := event.(type) {
		case Opened:
			neverOpened = out
		case TransferStarted:
			if transfers[e.Transfer] = out; out {
				e.Amount = money.Zero(e.Amount.Currency())
				event, out = e, false
			}
		case TransferCompleted:
			if transfers[e.Transfer] {
				e.Amount = money.Zero(e.Amount.Currency())
				event, out = e, false
			}
		case TransferRefunded:
			if transfers[e.Transfer] {
				e.Amount = money.Zero(e.Amount.Currency())
				event, out = e, false
			}
		}
		if out || neverOpened {
			return nil
		}
		return []Event{event}
	}
}

type glimpse struct {
	view   View
	number uint64 // number of the last applied event
}

// lookup replays an account from the journal, without starting it.
func (b *bank) lookup(ctx context.Context, id string, past eventsourcing.FoldOptions[Event], in money.Currency) (glimpse, error) {
	folded, err := eventsourcing.Fold(ctx, b.runtime, b.typ, id, past)
	if err != nil {
		return glimpse{}, err
	}
	account := folded.State
	view, err := account.View(in, time.Now())
	view.Pending = slices.DeleteFunc(view.Pending, func(p Pending) bool { return p.Amount.IsZero() }) // see leaveOut
	return glimpse{view, folded.SequenceNr}, err
}

func (g glimpse) print(w io.Writer, id string) {
	v := g.view
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		printf(tw, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("account", "%s", id)
	row("owner", "%s", v.Owner)
	row("status", "%s", status(v))
	row("balance", "%v", v.Balance)
	if v.Value.Rate != "" {
		row("value", "%v%s", v.Value.Amount, rateOf(v.Value))
	}
	if len(v.Pending) > 0 {
		row("in flight", "%v", v.InFlight)
	}
	for _, p := range v.Pending {
		row("", "transfer %d, %v to %s", p.Transfer, p.Amount, p.To)
	}
	row("last change", "%s", v.LastChange.Format(time.RFC3339Nano))
	if g.number > 0 {
		row("event", "%d", g.number)
	}
	_ = tw.Flush()
}

func status(v View) string {
	if v.Closed {
		return "closed"
	}
	return "open"
}

// rateOf formats the rate of a conversion, or returns "" without one.
func rateOf(x rates.Exchange) string {
	if x.Rate == "" {
		return ""
	}
	return fmt.Sprintf(" at %s (%s, %s)", x.Rate, x.Source, x.AsOf.Format(time.RFC3339))
}

// moment is a time in a command-line flag.
type moment struct{ time.Time }

// UnmarshalText parses a time in RFC 3339 format, or a date, which means the end of that day in
// UTC.
func (m *moment) UnmarshalText(text []byte) error {
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err == nil {
		m.Time = t
		return nil
	}
	day, err := time.Parse(time.DateOnly, string(text))
	if err != nil {
		return fmt.Errorf("%.40q is neither a time such as 2026-07-01T12:00:00Z nor a date", text)
	}
	m.Time = day.AddDate(0, 0, 1).Add(-time.Microsecond)
	return nil
}

// beginning is the start of a period. A date means the start of that day in UTC.
type beginning struct{ time.Time }

// UnmarshalText parses a time or a date.
func (b *beginning) UnmarshalText(text []byte) error {
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		b.Time = day
		return nil
	}
	return (*moment)(b).UnmarshalText(text)
}
