// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/journal"
)

// pageLedger is a read model in memory: the sums of all events, and the latest of them. It reads the
// journal in order and continues after its offset, so it adds each event once.
type pageLedger struct {
	mu        sync.Mutex
	offset    journal.Offset
	number    int           // of added events
	complete  bool          // the ledger has reached the end of the journal
	changed   chan struct{} // closed by the next event
	accounts  map[string]*ledgerAccount
	sums      auditReport
	events    []ledgerEvent     // the latest, oldest first
	transfers []*ledgerTransfer // the latest, oldest first
}

type ledgerAccount struct {
	id, owner string
	currency  money.Currency
	balance   big.Int
	last      uint64 // number of the last event
	changed   time.Time
	closed    bool
}

type ledgerEvent struct {
	account string
	number  uint64
	time    time.Time
	name    string // in the journal
	event   any
}

// ledgerTransfer is a transfer with its events at both accounts. A step without a number has not
// happened.
type ledgerTransfer struct {
	id               transferID
	to               string
	amount           money.Amount
	credited         money.Amount
	reason           string
	start, turn, end ledgerEvent
}

const (
	keptEvents    = 500
	keptTransfers = 100
)

// change returns a channel that is closed by the next event, and the number of events.
func (l *pageLedger) change() (<-chan struct{}, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed, l.number
}

// await waits until done returns true, which runs under the lock.
func (l *pageLedger) await(ctx context.Context, done func() bool) {
	for {
		changed, _ := l.change()
		l.mu.Lock()
		ok := done()
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// follow adds all events to the ledger, beginning with the first visit. The journal of a bank
// without visitors is not read.
func (p *webPage) follow() {
	select {
	case <-p.visited:
	case <-p.ctx.Done():
	}
	for p.ctx.Err() == nil {
		if err := p.read(); p.ctx.Err() == nil {
			p.logger.WarnContext(p.ctx, "page: reading the journal failed, retrying", slog.Any("error", err))
			sleep(p.ctx, time.Second)
		}
	}
}

// read adds the stored events and then the new ones. It ends with an error.
func (p *webPage) read() error {
	b, _ := p.bank()
	accounts := journal.Criteria{Types: []string{AccountTypeName}}
	for e, err := range journal.Current(p.ctx, b.journal, accounts, p.ledger.offset) {
		if err != nil {
			return err
		}
		p.add(e)
	}
	p.ledger.finish()
	for e, err := range journal.Live(p.ctx, b.journal, accounts, p.ledger.offset) {
		if err != nil {
			return err
		}
		p.add(e)
	}
	return nil
}

func (p *webPage) add(e journal.Envelope) {
	event, err := p.registry.Decode(e.Manifest, e.Payload)
	if err != nil {
		p.logger.WarnContext(p.ctx, "page: event not shown", slog.String("id", e.ID), slog.Uint64("number", e.SequenceNr), slog.Any("error", err))
	}
	p.ledger.add(accountOf(e.ID), e, event)
}

func (l *pageLedger) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complete = true
	l.publish()
}

func (l *pageLedger) publish() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// add adds an event to the sums, which have the meaning of those of the audit.
func (l *pageLedger) add(id string, stored journal.Envelope, event any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.publish()
	if l.accounts == nil {
		l.accounts, l.sums.totals = make(map[string]*ledgerAccount), make(map[money.Currency]*total)
	}
	a := l.accounts[id]
	if a == nil {
		a = &ledgerAccount{id: id}
		l.accounts[id] = a
	}
	step := ledgerEvent{id, stored.SequenceNr, stored.Time, stored.Manifest, event}
	l.offset, l.number, a.last, a.changed = stored.Offset, l.number+1, stored.SequenceNr, stored.Time
	l.events = append(l.events, step)
	l.events = l.events[max(0, len(l.events)-keptEvents):]
	switch e := event.(type) {
	case Opened:
		a.owner, a.currency = e.Owner, e.Currency
	case Deposited:
		l.credit(a, e.Amount)
		add(&l.sums.total(e.Original.Currency()).deposits, e.Original)
		l.sums.desk(e.Original, e.Amount)
	case Withdrawn:
		l.debit(a, e.Amount)
		add(&l.sums.total(e.Original.Currency()).withdrawals, e.Original)
		l.sums.desk(e.Amount, e.Original)
	case TransferStarted:
		l.debit(a, e.Amount)
		add(&l.sums.total(e.Amount.Currency()).inFlight, e.Amount)
		l.transfers = append(l.transfers, &ledgerTransfer{id: transferID{id, e.Transfer}, to: e.To, amount: e.Amount, start: step})
		l.transfers = l.transfers[max(0, len(l.transfers)-keptTransfers):]
	case Credited:
		l.credit(a, e.Amount)
		sub(&l.sums.total(e.Original.Currency()).inFlight, e.Original)
		l.sums.desk(e.Original, e.Amount)
		l.step(e.From, e.Nr, func(t *ledgerTransfer) { t.turn, t.credited = step, e.Amount })
	case CreditRefused:
		l.step(e.From, e.Nr, func(t *ledgerTransfer) { t.turn, t.reason = step, e.Reason })
	case TransferCompleted:
		l.step(id, e.Transfer, func(t *ledgerTransfer) { t.end = step })
	case TransferRefunded:
		l.credit(a, e.Amount)
		sub(&l.sums.total(e.Amount.Currency()).inFlight, e.Amount)
		l.step(id, e.Transfer, func(t *ledgerTransfer) { t.end, t.reason = step, e.Reason })
	case Closed:
		a.closed = true
	}
}

func (l *pageLedger) credit(a *ledgerAccount, amount money.Amount) {
	add(&a.balance, amount)
	add(&l.sums.total(amount.Currency()).accounts, amount)
}

func (l *pageLedger) debit(a *ledgerAccount, amount money.Amount) {
	sub(&a.balance, amount)
	sub(&l.sums.total(amount.Currency()).accounts, amount)
}

// step changes a transfer, if it is among the latest.
func (l *pageLedger) step(from string, number uint64, change func(*ledgerTransfer)) {
	for _, t := range slices.Backward(l.transfers) {
		if t.id == (transferID{from, number}) {
			change(t)
			return
		}
	}
}

// pick returns open accounts with a balance, the latest changed first.
func (l *pageLedger) pick(most int) (all []ledgerAccount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.latest() {
		if !a.closed && a.balance.Sign() > 0 && len(all) < most {
			all = append(all, *a)
		}
	}
	return all
}

// latest returns the open and closed accounts, the latest changed first.
func (l *pageLedger) latest() []*ledgerAccount {
	all := slices.DeleteFunc(slices.Collect(maps.Values(l.accounts)), func(a *ledgerAccount) bool { return a.currency == "" })
	slices.SortFunc(all, func(a, b *ledgerAccount) int {
		return cmp.Or(b.changed.Compare(a.changed), strings.Compare(a.id, b.id))
	})
	return all
}

// stored returns the events of a request. More than one would be an error of the bank.
func (l *pageLedger) stored(account, request string) (all []eventView) {
	for _, e := range l.events {
		if e.account == account && requestIn(e.event) == request {
			all = append(all, e.view())
		}
	}
	return all
}

// requestIn returns the request ID in an event, or "" if the event has none.
func requestIn(event any) string {
	switch e := event.(type) {
	case Opened:
		return e.Request
	case Deposited:
		return e.Request
	case Withdrawn:
		return e.Request
	case TransferStarted:
		return e.Request
	case Closed:
		return e.Request
	}
	return ""
}

// view adds the data of the ledger. If no account is selected, view selects the first one.
func (l *pageLedger) view(v *pageView, selected *string, home func(string) string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.Events, v.Loading = l.number, !l.complete
	accounts := l.latest()
	v.More = max(0, len(accounts)-shownAccounts)
	accounts = accounts[:len(accounts)-v.More]
	slices.SortFunc(accounts, func(a, b *ledgerAccount) int { return strings.Compare(a.id, b.id) })
	if *selected == "" && len(accounts) > 0 {
		*selected = accounts[0].id
	}
	for _, a := range accounts {
		v.Accounts = append(v.Accounts, accountRow{
			ID: a.id, Owner: a.owner, Currency: string(a.currency), Balance: decimal(&a.balance), Last: a.last,
			Branch: home(a.id), Selected: a.id == *selected, Closed: a.closed,
		})
	}
	for _, c := range money.Currencies() {
		v.Books = append(v.Books, l.book(c))
	}
	for _, e := range slices.Backward(l.events) {
		if len(v.Latest) == shownEvents {
			break
		}
		shown := e.view()
		shown.New = v.Outcome != nil && shown.Request != "" && shown.Request == v.Outcome.Request
		v.Latest = append(v.Latest, shown)
	}
	for _, ended := range []bool{false, true} { // first those that travel
		for _, t := range slices.Backward(l.transfers) {
			if len(v.Travel) < shownTransfers && ended == (t.end.number > 0) {
				v.Travel = append(v.Travel, t.view(home))
			}
		}
	}
}

func (l *pageLedger) book(c money.Currency) bookView {
	var sum, cash big.Int
	t := &total{}
	if l.sums.totals != nil {
		t = l.sums.total(c)
	}
	sum.Add(&t.accounts, &t.inFlight)
	sum.Add(&sum, &t.desk)
	cash.Sub(&t.deposits, &t.withdrawals)
	return bookView{
		Currency: string(c), Accounts: decimal(&t.accounts), InFlight: decimal(&t.inFlight), Desk: decimal(&t.desk),
		Sum: decimal(&sum), Cash: decimal(&cash), Balanced: t.difference().Sign() == 0,
	}
}

const clockFormat = "15:04:05.000"

func (e ledgerEvent) view() eventView {
	return eventView{
		Account: e.account, Number: e.number, Name: e.name, When: e.time.Format(clockFormat),
		Request: requestIn(e.event), Fields: fieldsOf(e.event),
	}
}

// fieldsOf returns the fields of an event that have a value, as they are in JSON. The time of the
// event is shown elsewhere.
func fieldsOf(event any) (all []fieldView) {
	data, err := json.Marshal(event)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	for _, err = d.Token(); err == nil && d.More(); {
		var name json.Token
		if name, err = d.Token(); err != nil {
			break
		}
		var value any
		err = d.Decode(&value)
		if field := fmt.Sprint(name); value != nil && value != "" && value != "0001-01-01T00:00:00Z" && field != "At" {
			all = append(all, fieldView{field, fmt.Sprint(value)})
		}
	}
	return all
}

func (t *ledgerTransfer) view(home func(string) string) transferView {
	v := transferView{
		ID: fmt.Sprintf("%s/%d", t.id.from, t.id.number), From: t.id.from, To: t.to, Amount: t.amount.String(), Reason: t.reason, State: "started",
	}
	turn, end := "credited", "completed"
	if t.reason != "" {
		turn, end = "refused", "refunded"
	}
	if t.credited != (money.Amount{}) {
		v.Credited = t.credited.String()
	}
	waiting := false
	for _, s := range []struct {
		name, account string
		event         ledgerEvent
	}{{"started", t.id.from, t.start}, {turn, t.to, t.turn}, {end, t.id.from, t.end}} {
		step := stepView{Name: s.name, Account: s.account, Branch: home(s.account), State: "waiting"}
		switch {
		case s.event.number > 0:
			v.State, step.State, step.Event = s.name, "done", fmt.Sprintf("#%d", s.event.number)
			step.When = s.event.time.Format(time.TimeOnly)
			if s.name != "started" {
				step.When = fmt.Sprintf("+%d ms", s.event.time.Sub(t.start.time).Milliseconds())
			}
			if s.name == "refused" {
				step.State = "refused"
			}
		case !waiting:
			step.State, step.When, waiting = "next", "waiting", true
		}
		v.Steps = append(v.Steps, step)
	}
	return v
}
