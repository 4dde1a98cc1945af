// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/examples/bank/requests"
	"github.com/refold-io/refold/journal"
)

// auditCmd checks the books. It only reads.
type auditCmd struct{}

func (c *auditCmd) Run(app *app) error {
	return app.read(func(b *bank) error {
		report, err := b.audit(app.ctx)
		if err != nil {
			return err
		}
		report.print(app.stdout)
		if n := len(report.violations); n > 0 {
			return fmt.Errorf("the audit found %d violations", n)
		}
		return nil
	})
}

func (b *bank) audit(ctx context.Context) (*auditReport, error) {
	return audit(ctx, b.journal, b.typ.Events, func(ctx context.Context, id string, upTo uint64) (answered, error) {
		folded, err := eventsourcing.Fold(ctx, b.runtime, b.typ, id, eventsourcing.FoldOptions[Event]{UpTo: upTo})
		if err != nil {
			return answered{}, err
		}
		account := folded.State
		a := answered{opened: account.Opened, snapshot: folded.SnapshotNr}
		if a.opened {
			a.view, err = account.View("", time.Now())
		}
		return a, err
	})
}

// answered is the state of an account according to its newest snapshot and the events after it.
type answered struct {
	opened   bool
	view     View
	snapshot uint64
}

// answerer returns the state of an account after an event.
type answerer func(ctx context.Context, id string, upTo uint64) (answered, error)

// violation is a broken rule, with the events that prove it.
type violation struct {
	rule, text string
	events     []eventRef
	shown      []string // the formatted events
}

type eventRef struct {
	account string
	number  uint64
}

type auditReport struct {
	accounts, events      int
	inFlight, unconfirmed int // numbers of transfers
	completed, refunded   int
	totals                map[money.Currency]*total
	violations            []violation
}

// auditor reads a journal. It computes all sums from the events, without the code of Account.
type auditor struct {
	journal   journal.Journal
	registry  *codec.Registry
	answer    answerer
	report    auditReport
	transfers map[transferID]*transferBooks
	lines     map[string]eventRef // requests that are lines of files
}

// audit checks all accounts in a journal. The error is the reason why it could not complete.
func audit(ctx context.Context, j journal.Journal, registry *codec.Registry, answer answerer) (*auditReport, error) {
	lister, ok := journal.As[journal.IDLister](j)
	if !ok {
		return nil, errors.New("audit: the journal cannot list its persistence IDs")
	}
	a := &auditor{
		journal: j, registry: registry, answer: answer,
		transfers: make(map[transferID]*transferBooks), lines: make(map[string]eventRef),
	}
	a.report.totals = make(map[money.Currency]*total)
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
	for i := range min(len(a.report.violations), maxShown) {
		v := &a.report.violations[i]
		for _, ref := range v.events {
			v.shown = append(v.shown, a.show(ctx, ref))
		}
	}
	return &a.report, nil
}

const maxShown = 100

func (a *auditor) violate(rule, text string, events ...eventRef) {
	a.report.violations = append(a.report.violations, violation{rule: rule, text: text, events: events})
}

func (a *auditor) show(ctx context.Context, ref eventRef) string {
	for record, err := range a.journal.Replay(ctx, journal.JoinID(AccountTypeName, ref.account), ref.number, ref.number) {
		if err != nil {
			return fmt.Sprintf("%s #%d: %v", ref.account, ref.number, err)
		}
		text := fmt.Sprintf("%s #%d %s %s", ref.account, ref.number, record.Time.Format(time.RFC3339Nano), record.Manifest)
		event, err := a.registry.Decode(record.Manifest, record.Payload)
		if err != nil {
			return fmt.Sprintf("%s: %v", text, err)
		}
		return fmt.Sprintf("%s %+v", text, event)
	}
	return fmt.Sprintf("%s #%d is missing", ref.account, ref.number)
}

func (r *auditReport) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	printf(tw, "currency\tdeposits\twithdrawals\taccounts\tin flight\texchange desk\tdifference\t\n")
	for _, c := range money.Currencies() {
		t := r.total(c)
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

// books are the sums of the events of one account.
type books struct {
	id             string
	opened, closed bool
	currency       money.Currency
	balance        big.Int
	started        uint64 // number of started transfers
	requests       map[string]eventRef
	lines          map[string]fileLine // the last line of each file
	last           eventRef
}

type fileLine struct {
	number uint64
	event  eventRef
}

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
			a.violate("event", fmt.Sprintf("account %s: event %d cannot be decoded: %v", id, record.SequenceNr, err), ref)
			continue
		}
		a.book(b, event, ref)
	}
	if highest+1 != next {
		a.violate("sequence", fmt.Sprintf("account %s: the last event is %d, the journal counts %d", id, next-1, highest), b.last)
	}
	return a.compare(ctx, b, highest)
}

// compare checks the state that the account reports against the sums of its events.
func (a *auditor) compare(ctx context.Context, b *books, upTo uint64) error {
	state, err := a.answer(ctx, b.id, upTo)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		a.violate("answer", fmt.Sprintf("account %s cannot be recovered: %v", b.id, err), b.last)
		return nil
	}
	if state.opened != b.opened {
		a.violate("answer", fmt.Sprintf("account %s: open by its events: %v, by its state: %v", b.id, b.opened, state.opened), b.last)
	}
	if !state.opened {
		return nil
	}
	a.report.accounts++
	v := state.view
	if v.Balance.Currency() != b.currency || b.balance.Cmp(big.NewInt(v.Balance.Minor())) != 0 {
		a.violate("balance", fmt.Sprintf("account %s: its events add up to %s %s, its state has %v (from the snapshot at %d)",
			b.id, decimal(&b.balance), b.currency, v.Balance, state.snapshot), b.last)
	}
	if v.Closed != b.closed {
		a.violate("answer", fmt.Sprintf("account %s: closed by its events: %v, by its state: %v", b.id, b.closed, v.Closed), b.last)
	}
	add(&a.report.total(v.Balance.Currency()).accounts, v.Balance)
	sum := money.Zero(v.InFlight.Currency())
	for _, p := range v.Pending {
		t := a.transfer(transferID{b.id, p.Transfer})
		t.pending = append(t.pending, p.Amount)
		if sum, err = sum.Add(p.Amount); err != nil {
			break
		}
	}
	if err != nil || sum != v.InFlight {
		a.violate("answer", fmt.Sprintf("account %s: its state has %v in flight, its transfers add up to %v", b.id, v.InFlight, sum), b.last)
	}
	return nil
}

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
		add(&b.balance, e.Amount)
		add(&a.report.total(e.Original.Currency()).deposits, e.Original)
		a.report.desk(e.Original, exchangedOr(e.Exchange, b.currency))
	case Withdrawn:
		a.request(b, e.Request, ref)
		a.exchange(b, e.Exchange, ref)
		sub(&b.balance, e.Amount)
		add(&a.report.total(e.Original.Currency()).withdrawals, e.Original)
		a.report.desk(exchangedOr(e.Exchange, b.currency), e.Original)
	case TransferStarted:
		a.request(b, e.Request, ref)
		a.exchange(b, e.Exchange, ref)
		sub(&b.balance, e.Amount)
		if b.started++; e.Transfer != b.started {
			a.violate("transfer", fmt.Sprintf("account %s: its transfer %d has the number %d", b.id, b.started, e.Transfer), ref)
		}
		t := a.transfer(transferID{b.id, e.Transfer})
		t.to, t.started = e.To, append(t.started, transferEntry{ref: ref, amount: e.Amount})
	case TransferCompleted:
		t := a.transfer(transferID{b.id, e.Transfer})
		t.completed = append(t.completed, transferEntry{ref: ref, amount: e.Amount})
	case TransferRefunded:
		add(&b.balance, e.Amount)
		t := a.transfer(transferID{b.id, e.Transfer})
		t.refunded = append(t.refunded, transferEntry{ref: ref, amount: e.Amount, code: e.Reason})
	case Credited:
		a.exchange(b, e.Exchange, ref)
		add(&b.balance, e.Amount)
		a.report.desk(e.Original, exchangedOr(e.Exchange, b.currency))
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
		a.violate("event", fmt.Sprintf("account %s: a %T is not an event of an account", b.id, event), ref)
	}
	if b.balance.Sign() < 0 {
		a.violate("balance", fmt.Sprintf("account %s: its balance is %s %s", b.id, decimal(&b.balance), b.currency), ref)
	}
}

// checkLife checks that an account changes only while it is open.
func (a *auditor) checkLife(b *books, event any, ref eventRef) {
	_, opens := event.(Opened)
	_, refuses := event.(CreditRefused)
	switch {
	case refuses: // an account that is not open may also refuse a credit
	case opens && b.opened:
		a.violate("life", fmt.Sprintf("account %s was opened twice", b.id), ref)
	case !opens && !b.opened:
		a.violate("life", fmt.Sprintf("account %s was not open yet", b.id), ref)
	case b.closed:
		a.violate("life", fmt.Sprintf("account %s was closed before", b.id), ref)
	}
}

// request checks that a request was applied once, and lines of a file in their order.
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

// exchange checks that the converted amount matches the recorded rate.
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

// transferID identifies a transfer: its source, and its number there.
type transferID struct {
	from   string
	number uint64
}

// transferBooks are the events of one transfer, on both sides.
type transferBooks struct {
	to                                             string
	started, credited, turned, completed, refunded []transferEntry
	pending                                        []money.Amount // according to the state of the source
}

// transferEntry is one event. The amount is in the debited currency.
type transferEntry struct {
	ref    eventRef
	amount money.Amount
	code   string // the code of the refusal
}

func (a *auditor) transfer(id transferID) *transferBooks {
	t := a.transfers[id]
	if t == nil {
		t = &transferBooks{}
		a.transfers[id] = t
	}
	return t
}

// checkSender checks that both fields of a credit name the same source.
func (a *auditor) checkSender(from, sender string, ref eventRef) {
	if want := journal.JoinID(AccountTypeName, from) + "#Transfers"; sender != want {
		a.violate("transfer", fmt.Sprintf("a credit from %s was delivered by %q", from, sender), ref)
	}
}

func (a *auditor) closeTransfers() {
	ids := slices.SortedFunc(maps.Keys(a.transfers), func(x, y transferID) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.number, y.number))
	})
	for _, id := range ids {
		a.closeTransfer(id, a.transfers[id])
	}
}

func (a *auditor) closeTransfer(id transferID, t *transferBooks) {
	violate := func(format string, args ...any) {
		var refs []eventRef
		for _, e := range slices.Concat(t.started, t.turned, t.credited, t.completed, t.refunded) {
			refs = append(refs, e.ref)
		}
		a.violate("transfer", fmt.Sprintf("transfer %d of %s ", id.number, id.from)+fmt.Sprintf(format, args...), refs...)
	}
	if len(t.started) == 0 {
		switch {
		case len(t.credited) > 0:
			violate("was credited but never debited")
		case len(t.pending) > 0:
			violate("is pending but never debited")
		default:
			violate("has ended but was never debited")
		}
		return
	}
	start := t.started[0]
	for _, step := range []struct {
		name    string
		entries []transferEntry
	}{{"debited", t.started}, {"credited", t.credited}, {"refused", t.turned}, {"completed", t.completed}, {"refunded", t.refunded}} {
		if n := len(step.entries); n > 1 {
			violate("was %s %d times", step.name, n)
		}
		for _, e := range step.entries {
			if e.amount != start.amount {
				violate("was debited with %v and %s with %v", start.amount, step.name, e.amount)
			}
		}
	}
	for _, e := range slices.Concat(t.credited, t.turned) {
		if e.ref.account != t.to {
			violate("went to %s and reached %s", t.to, e.ref.account)
		}
	}
	a.closeState(t, violate)
}

// closeState checks that a transfer is in exactly one state.
func (a *auditor) closeState(t *transferBooks, violate func(string, ...any)) {
	credited, turned := len(t.credited) > 0, len(t.turned) > 0
	completed, refunded := len(t.completed) > 0, len(t.refunded) > 0
	switch {
	case credited && turned:
		violate("was credited and refused")
	case credited && refunded:
		violate("was credited and refunded")
	case completed && refunded:
		violate("was completed and refunded")
	case completed && !credited:
		violate("was completed but never credited")
	case refunded && !turned:
		violate("was refunded but never refused")
	}
	if refunded && turned && t.refunded[0].code != t.turned[0].code {
		violate("was refused for %s and refunded for %s", t.turned[0].code, t.refunded[0].code)
	}
	switch {
	case completed:
		a.report.completed++
	case refunded:
		a.report.refunded++
	case credited:
		a.report.unconfirmed++
	default:
		a.report.inFlight++
	}
	if !credited && !refunded {
		debited := t.started[0].amount
		add(&a.report.total(debited.Currency()).inFlight, debited)
	}
	ended := completed || refunded
	switch {
	case ended && len(t.pending) > 0:
		violate("has ended, and its source reports that it is pending")
	case !ended && len(t.pending) != 1:
		violate("has not ended, and its source reports that it is not pending")
	case !ended && t.pending[0] != t.started[0].amount:
		violate("was debited with %v, and its source reports %v", t.started[0].amount, t.pending[0])
	}
}

// total is the books of one currency, in minor units:
//
//	accounts + in flight + desk = deposits - withdrawals
//
// The two sides come from independent data. Deposits and withdrawals are the cash amounts, in their
// currencies. Accounts are the balances of the accounts' states. In flight are the transfers that
// are debited and neither credited nor refunded. The desk is the balance of all conversions,
// computed again from the recorded rates.
type total struct {
	deposits, withdrawals, accounts, inFlight, desk big.Int
}

// difference returns the left side minus the right side. It is zero if the books balance.
func (t *total) difference() *big.Int {
	var d big.Int
	d.Add(&t.accounts, &t.inFlight)
	d.Add(&d, &t.desk)
	d.Sub(&d, &t.deposits)
	return d.Add(&d, &t.withdrawals)
}

// total returns the books of a currency. Only books of known currencies are printed and checked.
func (r *auditReport) total(c money.Currency) *total {
	t := r.totals[c]
	if t == nil {
		t = &total{}
		r.totals[c] = t
	}
	return t
}

func add(sum *big.Int, a money.Amount) { sum.Add(sum, big.NewInt(a.Minor())) }
func sub(sum *big.Int, a money.Amount) { sum.Sub(sum, big.NewInt(a.Minor())) }

// desk adds both sides of a conversion to the balance of the exchange desk. Without a conversion it
// adds nothing.
func (r *auditReport) desk(in, out money.Amount) {
	if in.Currency() == out.Currency() {
		return
	}
	sub(&r.total(out.Currency()).desk, out)
	add(&r.total(in.Currency()).desk, in)
}

// exchangedOr computes a conversion again. If it cannot be computed, exchangedOr returns the
// recorded amount; such an event is a violation in any case.
func exchangedOr(x rates.Exchange, to money.Currency) money.Amount {
	if amount, err := exchanged(x, to); err == nil {
		return amount
	}
	return x.Amount
}

func (a *auditor) closeTotals() {
	for _, c := range money.Currencies() {
		t := a.report.total(c)
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
