// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/big"

	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/examples/bank/requests"
	"github.com/refold-io/refold/journal"
)

// books are what the events of one account add up to.
type books struct {
	id             string
	opened, closed bool
	currency       money.Currency
	balance        big.Int
	started        uint64 // transfers
	requests       map[string]eventRef
	lines          map[string]fileLine // the last line of each file
	last           eventRef
}

type fileLine struct {
	number uint64
	event  eventRef
}

// account goes through the events of one account.
func (a *auditor) account(ctx context.Context, id string) error {
	b := &books{id: id, requests: make(map[string]eventRef), lines: make(map[string]fileLine)}
	pid := journal.JoinID(AccountTypeName, id)
	highest, err := a.journal.HighestSequenceNr(ctx, pid)
	if err != nil {
		return err
	}
	next := uint64(1)
	for record, err := range a.journal.Replay(ctx, pid, 1, highest) {
		if err != nil {
			return err
		}
		ref := eventRef{id, record.SequenceNr}
		if record.SequenceNr != next {
			a.violate("sequence", fmt.Sprintf("account %s: event %d is followed by %d", id, next-1, record.SequenceNr), b.last, ref)
		}
		next, b.last = record.SequenceNr+1, ref
		a.report.events++
		if record.IsFence() {
			continue
		}
		event, err := a.registry.Decode(record.Manifest, record.Payload)
		if err != nil {
			a.violate("event", fmt.Sprintf("account %s: event %d can't be read: %v", id, record.SequenceNr, err), ref)
			continue
		}
		a.book(b, event, ref)
	}
	if highest+1 != next {
		a.violate("sequence", fmt.Sprintf("account %s: the last event is %d, the journal counts %d", id, next-1, highest), b.last)
	}
	return a.compare(ctx, b, highest)
}

// compare checks that the account answers what its events up to a number say.
func (a *auditor) compare(ctx context.Context, b *books, upTo uint64) error {
	said, err := a.answer(ctx, b.id, upTo)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		a.violate("answer", fmt.Sprintf("account %s does not answer: %v", b.id, err), b.last)
		return nil
	}
	if said.opened != b.opened {
		a.violate("answer", fmt.Sprintf("account %s: open by its events: %v, by its answer: %v", b.id, b.opened, said.opened), b.last)
	}
	if !said.opened {
		return nil
	}
	a.report.accounts++
	v := said.view
	if v.Balance.Currency() != b.currency || b.balance.Cmp(big.NewInt(v.Balance.Minor())) != 0 {
		a.violate("balance", fmt.Sprintf("account %s: its events add up to %s %s, it answers %v (from the snapshot at %d)",
			b.id, decimal(&b.balance), b.currency, v.Balance, said.snapshot), b.last)
	}
	if v.Closed != b.closed {
		a.violate("answer", fmt.Sprintf("account %s: closed by its events: %v, by its answer: %v", b.id, b.closed, v.Closed), b.last)
	}
	if t := a.report.totals[v.Balance.Currency()]; t != nil {
		add(&t.accounts, v.Balance)
	}
	sum := money.Zero(v.InFlight.Currency())
	for _, p := range v.Pending {
		a.pending(b.id, p)
		if sum, err = sum.Add(p.Amount); err != nil {
			break
		}
	}
	if err != nil || sum != v.InFlight {
		a.violate("answer", fmt.Sprintf("account %s: it answers %v in flight, its transfers add up to %v", b.id, v.InFlight, sum), b.last)
	}
	return nil
}

// book enters an event into the books.
func (a *auditor) book(b *books, event any, ref eventRef) {
	a.checkLife(b, event, ref)
	switch e := event.(type) {
	case Opened:
		b.opened, b.currency = true, e.Currency
		if !e.Currency.Known() {
			a.violate("life", fmt.Sprintf("account %s was opened in %q", b.id, e.Currency), ref)
		}
		a.request(b, e.Request, ref)
	case Deposited:
		a.request(b, e.Request, ref)
		a.exchange(b, e.Exchange, ref)
		b.balance.Add(&b.balance, big.NewInt(e.Amount.Minor()))
		a.moved(e.Original, (*total).deposit)
		a.desk(e.Original, exchangedOr(e.Exchange, b.currency))
	case Withdrawn:
		a.request(b, e.Request, ref)
		a.exchange(b, e.Exchange, ref)
		b.balance.Sub(&b.balance, big.NewInt(e.Amount.Minor()))
		a.moved(e.Original, (*total).withdraw)
		a.desk(exchangedOr(e.Exchange, b.currency), e.Original)
	case TransferStarted:
		a.request(b, e.Request, ref)
		a.exchange(b, e.Exchange, ref)
		b.balance.Sub(&b.balance, big.NewInt(e.Amount.Minor()))
		if b.started++; e.Transfer != b.started {
			a.violate("transfer", fmt.Sprintf("account %s: its transfer %d has the number %d", b.id, b.started, e.Transfer), ref)
		}
		t := a.transfer(transferID{b.id, e.Transfer})
		t.to, t.started = e.To, append(t.started, transferEntry{ref: ref, amount: e.Amount})
	case TransferCompleted:
		t := a.transfer(transferID{b.id, e.Transfer})
		t.completed = append(t.completed, transferEntry{ref: ref, amount: e.Amount})
	case TransferRefunded:
		b.balance.Add(&b.balance, big.NewInt(e.Amount.Minor()))
		t := a.transfer(transferID{b.id, e.Transfer})
		t.refunded = append(t.refunded, transferEntry{ref: ref, amount: e.Amount, code: e.Reason})
	case Credited:
		a.exchange(b, e.Exchange, ref)
		b.balance.Add(&b.balance, big.NewInt(e.Amount.Minor()))
		a.desk(e.Original, exchangedOr(e.Exchange, b.currency))
		a.checkSender(e.From, e.Sender, ref)
		t := a.transfer(transferID{e.From, e.Nr})
		t.credited = append(t.credited, transferEntry{ref: ref, amount: e.Original})
	case CreditRefused:
		a.checkSender(e.From, e.Sender, ref)
		t := a.transfer(transferID{e.From, e.Nr})
		t.turned = append(t.turned, transferEntry{ref: ref, amount: e.Amount, code: e.Reason})
	case Closed:
		a.request(b, e.Request, ref)
		b.closed = true
		if b.balance.Sign() != 0 {
			a.violate("life", fmt.Sprintf("account %s was closed with %s %s", b.id, decimal(&b.balance), b.currency), ref)
		}
	default:
		a.violate("event", fmt.Sprintf("account %s: a %T is no event of an account", b.id, event), ref)
	}
	if b.balance.Sign() < 0 {
		a.violate("balance", fmt.Sprintf("account %s: its balance is %s %s", b.id, decimal(&b.balance), b.currency), ref)
	}
}

// checkLife checks that what happens to an account happens while it is open.
func (a *auditor) checkLife(b *books, event any, ref eventRef) {
	_, opens := event.(Opened)
	_, refuses := event.(CreditRefused)
	switch {
	case refuses: // also by one that is not open
	case opens && b.opened:
		a.violate("life", fmt.Sprintf("account %s was opened twice", b.id), ref)
	case !opens && !b.opened:
		a.violate("life", fmt.Sprintf("account %s was not open yet", b.id), ref)
	case b.closed:
		a.violate("life", fmt.Sprintf("account %s was closed before", b.id), ref)
	}
}

// request checks that a request was applied once, and lines in their order.
func (a *auditor) request(b *books, id string, ref eventRef) {
	if id == "" {
		return
	}
	if first, ok := b.requests[id]; ok {
		a.violate("request", fmt.Sprintf("account %s: request %s was applied twice", b.id, id), first, ref)
	}
	b.requests[id] = ref
	file, line, ok := requests.ParseFileLine(id)
	if !ok {
		return
	}
	if last := b.lines[file]; line < last.number {
		a.violate("request", fmt.Sprintf("account %s: line %d of file %s was applied after line %d", b.id, line, file, last.number), last.event, ref)
	}
	b.lines[file] = fileLine{line, ref}
	if other, ok := a.lines[id]; ok && other.account != b.id {
		a.violate("request", fmt.Sprintf("line %d of file %s was applied to two accounts", line, file), other, ref)
	}
	a.lines[id] = ref
}

// exchange checks that a conversion is the one that its rate gives.
func (a *auditor) exchange(b *books, x rates.Exchange, ref eventRef) {
	want, err := exchanged(x, b.currency)
	switch {
	case err != nil:
		a.violate("exchange", fmt.Sprintf("account %s: %v", b.id, err), ref)
	case want != x.Amount:
		a.violate("exchange", fmt.Sprintf("account %s: %v at %q is %v, not %v", b.id, x.Original, x.Rate, want, x.Amount), ref)
	case !x.Original.Positive() || !x.Amount.Positive():
		a.violate("exchange", fmt.Sprintf("account %s: %v as %v is not positive", b.id, x.Original, x.Amount), ref)
	}
}
