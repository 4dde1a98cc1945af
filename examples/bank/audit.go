// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/journal"
)

// auditCmd proves the books. It only reads.
type auditCmd struct{}

// Run executes the command.
func (c *auditCmd) Run(app *app) (err error) {
	b, done, err := app.openReadOnly()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	report, err := b.audit(app.ctx)
	if err != nil {
		return err
	}
	report.print(app.stdout)
	if n := len(report.violations); n > 0 {
		return fmt.Errorf("the audit found %d violations", n)
	}
	return nil
}

// audit goes through every event of every account.
func (b *bank) audit(ctx context.Context) (*auditReport, error) {
	return audit(ctx, b.journal, b.typ.Events, func(ctx context.Context, id string, upTo uint64) (answered, error) {
		folded, err := eventsourcing.Fold(ctx, b.runtime, b.typ, id, eventsourcing.FoldOptions[Event]{UpTo: upTo})
		if err != nil {
			return answered{}, err
		}
		account, ok := folded.State.(*Account)
		if !ok {
			return answered{}, fmt.Errorf("its state is a %T", folded.State)
		}
		a := answered{opened: account.Opened, snapshot: folded.SnapshotNr}
		if a.opened {
			a.view, err = account.View("", time.Now())
		}
		return a, err
	})
}

// answered is what an account says about itself, from its newest snapshot and
// the events behind it.
type answered struct {
	opened   bool
	view     View
	snapshot uint64
}

// answerer asks an account what it is after the event with a number.
type answerer func(ctx context.Context, id string, upTo uint64) (answered, error)

// violation is a rule that the journal breaks, and the events that show it.
type violation struct {
	rule, text string
	events     []eventRef
	shown      []string // the events, in words
}

// eventRef names an event.
type eventRef struct {
	account string
	number  uint64
}

// auditReport is what an audit found.
type auditReport struct {
	accounts, events      int
	inFlight, unconfirmed int // transfers
	completed, refunded   int
	totals                map[money.Currency]*total
	violations            []violation
}

// auditor goes through a journal. It computes all sums itself, from what the
// events say and not by the code of Account.
type auditor struct {
	journal   journal.Journal
	registry  *codec.Registry
	answer    answerer
	report    auditReport
	transfers map[transferID]*transferBooks
	lines     map[string]eventRef // the requests that are lines of files
}

// audit checks the books of all accounts in a journal. The error is one that
// kept it from looking.
func audit(ctx context.Context, j journal.Journal, registry *codec.Registry, answer answerer) (*auditReport, error) {
	lister, ok := journal.As[journal.IDLister](j)
	if !ok {
		return nil, errors.New("audit: the journal can't list what it holds")
	}
	a := &auditor{
		journal: j, registry: registry, answer: answer,
		transfers: make(map[transferID]*transferBooks), lines: make(map[string]eventRef),
	}
	a.report.totals = make(map[money.Currency]*total)
	for _, c := range money.Currencies() {
		a.report.totals[c] = &total{}
	}
	for pid, err := range lister.PersistenceIDs(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("audit: list the accounts: %w", err)
		}
		if kind, id := journal.SplitID(pid); kind == AccountTypeName {
			if err := a.account(ctx, id); err != nil {
				return nil, fmt.Errorf("audit: account %q: %w", id, err)
			}
		}
	}
	a.closeTransfers()
	a.closeTotals()
	for i := range a.report.violations {
		v := &a.report.violations[i]
		if i == maxShown {
			break
		}
		for _, ref := range v.events {
			v.shown = append(v.shown, a.show(ctx, ref))
		}
	}
	return &a.report, nil
}

// maxShown is how many violations are printed.
const maxShown = 100

func (a *auditor) violate(rule, text string, events ...eventRef) {
	a.report.violations = append(a.report.violations, violation{rule: rule, text: text, events: events})
}

// show describes an event in words.
func (a *auditor) show(ctx context.Context, ref eventRef) string {
	for record, err := range a.journal.Replay(ctx, journal.JoinID(AccountTypeName, ref.account), ref.number, ref.number) {
		if err != nil {
			return fmt.Sprintf("%s #%d: %v", ref.account, ref.number, err)
		}
		event, err := a.registry.Decode(record.Manifest, record.Payload)
		if err != nil {
			return fmt.Sprintf("%s #%d %s %s: %v", ref.account, ref.number, record.Time.Format(time.RFC3339Nano), record.Manifest, err)
		}
		return fmt.Sprintf("%s #%d %s %s %+v", ref.account, ref.number, record.Time.Format(time.RFC3339Nano), record.Manifest, event)
	}
	return fmt.Sprintf("%s #%d is missing", ref.account, ref.number)
}

// print writes the totals, and OK or the violations.
func (r *auditReport) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	printf(tw, "currency\tdeposits\twithdrawals\taccounts\tin flight\texchange desk\tdifference\t\n")
	for _, c := range money.Currencies() {
		t := r.totals[c]
		printf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", c,
			decimal(&t.deposits), decimal(&t.withdrawals), decimal(&t.accounts), decimal(&t.inFlight), decimal(&t.desk), decimal(t.difference()))
	}
	_ = tw.Flush()
	printf(w, "%s accounts, %s events; transfers: %s in flight, %s arrived and not yet confirmed, %s completed, %s refunded\n",
		count(r.accounts), count(r.events), count(r.inFlight), count(r.unconfirmed), count(r.completed), count(r.refunded))
	if len(r.violations) == 0 {
		printf(w, "OK\n")
		return
	}
	for i, v := range r.violations {
		if i == maxShown {
			printf(w, "and %d more\n", len(r.violations)-maxShown)
			return
		}
		printf(w, "VIOLATION %s: %s\n", v.rule, v.text)
		for _, e := range v.shown {
			printf(w, "    %s\n", e)
		}
	}
}

func count(n int) string { return thousands(int64(n)) }

// exchanged computes a conversion again.
func exchanged(x rates.Exchange, to money.Currency) (money.Amount, error) {
	if x.Rate == "" {
		if x.Original.Currency() != to {
			return money.Amount{}, fmt.Errorf("%v became %s without a rate", x.Original, to)
		}
		return x.Original, nil
	}
	if x.Rounding != money.Rounding {
		return money.Amount{}, fmt.Errorf("rounding %q is not known", x.Rounding)
	}
	return x.Rate.Convert(x.Original, to)
}
