// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/delivery"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/examples/bank/requests"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// forgery holds the events of some accounts, which a test falsifies.
type forgery map[string][]Event

var (
	fileA = strings.Repeat("a", 32)
	noon  = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
)

func cause(request string) Cause { return Cause{At: noon, Request: request} }

func plain(a money.Amount) rates.Exchange { return rates.Exchange{Original: a, Amount: a} }

func at(rate money.Rate, original, converted money.Amount) rates.Exchange {
	return rates.Exchange{Original: original, Amount: converted, Rate: rate, Rounding: money.Rounding, Source: "test", AsOf: noon}
}

func sent(from string, nr uint64) delivery.Header {
	return delivery.Header{Sender: "account|" + from + "#Transfers", Nr: nr, Floor: 1}
}

// honest returns correct books. Of alice's transfers, the first one completed, the second was
// refunded, the third was credited but not confirmed, and the fourth is in flight.
func honest() forgery {
	return forgery{
		"alice": {
			Opened{cause(""), money.USD, "Alice"},
			Deposited{cause("r1"), plain(usd("100"))},
			TransferStarted{cause(requests.FileLine(fileA, 2)), plain(usd("10")), 1, "bob"},
			TransferStarted{cause(requests.FileLine(fileA, 3)), plain(usd("5")), 2, "nobody"},
			TransferCompleted{noon, 1, usd("10")},
			TransferRefunded{noon, 2, usd("5"), "bank/not_open"},
			TransferStarted{cause(""), plain(usd("7")), 3, "bob"},
			TransferStarted{cause(""), at("0.031", twd("100"), usd("3.10")), 4, "bob"},
			Withdrawn{cause(""), at("0.031", twd("1000"), usd("31"))},
		},
		"bob": {
			Opened{cause(""), money.TWD, "Bob"},
			Deposited{cause("r1"), at("32.15", usd("10"), twd("321.50"))},
			Credited{noon, at("32.15", usd("10"), twd("321.50")), sent("alice", 1), "alice"},
			Credited{noon, at("32.15", usd("7"), twd("225.05")), sent("alice", 3), "alice"},
		},
		"carol": {
			Opened{cause(""), money.TWD, "Carol"},
			Closed{cause("")},
		},
		"nobody": {
			CreditRefused{noon, sent("alice", 2), "alice", usd("5"), "bank/not_open"},
		},
	}
}

// write stores the events in a bank.
func (f forgery) write(t *testing.T) *bank {
	t.Helper()
	b := newBank(t, testRates)
	for _, id := range slices.Sorted(maps.Keys(f)) {
		w := journal.Write{ID: "account|" + id, Writer: "forger"}
		for i, event := range f[id] {
			record := journal.Event{SequenceNr: uint64(i + 1), Time: noon}
			if event != nil { // a nil event stands for a fence
				var err error
				if record.Manifest, record.Payload, err = b.typ.Events.Encode(event); err != nil {
					t.Fatal(err)
				}
			}
			w.Events = append(w.Events, record)
		}
		if errs := b.journal.Append(t.Context(), []journal.Write{w}); errs != nil {
			t.Fatal(errs)
		}
	}
	return b
}

// found returns the violations, as "rule: text".
func found(r *auditReport) (all []string) {
	for _, v := range r.violations {
		all = append(all, v.rule+": "+v.text)
	}
	return all
}

// expect checks that the report has a violation with each of these texts.
func expect(t *testing.T, r *auditReport, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	got := found(r)
	for _, text := range want {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, text) }) {
			t.Errorf("no violation contains %q; got\n%s", text, strings.Join(got, "\n"))
		}
	}
	if len(want) == 0 && len(got) > 0 {
		t.Errorf("got the violations\n%s\nwant none", strings.Join(got, "\n"))
	}
}

func TestAuditOfCorrectBooks(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	report, err := b.audit(t.Context())
	expect(t, report, err)
	if report.accounts != 3 || report.events != 16 || report.completed != 1 || report.refunded != 1 || report.unconfirmed != 1 || report.inFlight != 1 {
		t.Errorf("report of correct books: %+v, want 3 accounts, 16 events, and 1 completed, refunded, unconfirmed and pending transfer", report)
	}
	var s strings.Builder
	report.print(&s)
	const want = `  currency  deposits  withdrawals  accounts  in flight  exchange desk  difference
       TWD      0.00     1,000.00    868.05       0.00      -1,868.05        0.00
       USD    110.00         0.00     48.90       3.10          58.00        0.00
3 accounts, 16 events; transfers: 1 in flight, 1 arrived and not yet confirmed, 1 completed, 1 refunded
OK
`
	if s.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", s.String(), want)
	}
}

// Each case breaks one rule of the audit.
func TestAuditOfFalsifiedBooks(t *testing.T) {
	t.Parallel()
	const totals = "totals: "
	for name, c := range map[string]struct {
		falsify func(forgery)
		want    []string
	}{
		"a larger deposit": {func(f forgery) {
			f["alice"][1] = Deposited{cause("r1"), rates.Exchange{Original: usd("100"), Amount: usd("101")}}
		}, []string{"exchange: account alice: 100.00 USD at \"\" is 100.00 USD, not 101.00 USD", totals + "USD"}},
		"a larger conversion": {func(f forgery) {
			f["bob"][1] = Deposited{cause("r1"), at("32.15", usd("10"), twd("321.51"))}
		}, []string{"exchange: account bob: 10.00 USD at \"32.15\" is 321.50 TWD, not 321.51 TWD", totals + "TWD"}},
		"another rate": {func(f forgery) {
			f["bob"][1] = Deposited{cause("r1"), at("32.16", usd("10"), twd("321.50"))}
		}, []string{"exchange: account bob", totals + "TWD"}},
		"a smaller withdrawal": {func(f forgery) {
			f["alice"][8] = Withdrawn{cause(""), at("0.031", twd("1000"), usd("30"))}
		}, []string{"exchange: account alice", totals + "USD"}},
		"a conversion without a rate": {func(f forgery) {
			f["bob"][1] = Deposited{cause("r1"), rates.Exchange{Original: usd("10"), Amount: twd("321.50")}}
		}, []string{"exchange: account bob: 10.00 USD became TWD without a rate"}},
		"another rounding": {func(f forgery) {
			x := at("32.15", usd("10"), twd("321.50"))
			x.Rounding = "up"
			f["bob"][1] = Deposited{cause("r1"), x}
		}, []string{`exchange: account bob: rounding "up" is not known`}},
		"a negative deposit": {func(f forgery) {
			f["alice"][1] = Deposited{cause("r1"), plain(usd("100"))}
			f["carol"] = slices.Insert(f["carol"], 1, Event(Deposited{cause(""), plain(twd("-5"))}))
		}, []string{"exchange: account carol: -5.00 TWD as -5.00 TWD is not positive", "balance: account carol: its balance is -5.00 TWD"}},
		"a balance below zero": {func(f forgery) {
			f["bob"] = append(f["bob"], Withdrawn{cause(""), plain(twd("10000"))})
		}, []string{"balance: account bob: its balance is -9,131.95 TWD"}},

		"a repeated credit": {func(f forgery) {
			f["bob"] = append(f["bob"], f["bob"][2])
		}, []string{"transfer: transfer 1 of alice was credited 2 times", totals}},
		"a credit without a debit": {func(f forgery) {
			f["bob"] = append(f["bob"], Credited{noon, at("32.15", usd("10"), twd("321.50")), sent("zoe", 1), "zoe"})
		}, []string{"transfer: transfer 1 of zoe was credited but never debited", totals}},
		"a larger credit": {func(f forgery) {
			f["bob"][2] = Credited{noon, at("32.15", usd("20"), twd("643")), sent("alice", 1), "alice"}
		}, []string{"transfer: transfer 1 of alice was debited with 10.00 USD and credited with 20.00 USD", totals + "USD"}},
		"a credit to another account": {func(f forgery) {
			f["carol"] = []Event{f["carol"][0], f["bob"][2]}
			f["bob"] = slices.Delete(f["bob"], 2, 3)
		}, []string{"transfer: transfer 1 of alice went to bob and reached carol"}},
		"a missing credit": {func(f forgery) {
			f["bob"] = slices.Delete(f["bob"], 2, 3)
		}, []string{"transfer: transfer 1 of alice was completed but never credited"}},
		"a credit of another sender": {func(f forgery) {
			f["bob"][2] = Credited{noon, at("32.15", usd("10"), twd("321.50")), sent("zoe", 1), "alice"}
		}, []string{`transfer: a credit from alice was delivered by "account|zoe#Transfers"`}},
		"a repeated refund": {func(f forgery) {
			f["alice"] = append(f["alice"], f["alice"][5])
		}, []string{"transfer: transfer 2 of alice was refunded 2 times", totals + "USD"}},
		"a larger refund": {func(f forgery) {
			f["alice"][5] = TransferRefunded{noon, 2, usd("6"), "bank/not_open"}
		}, []string{"transfer: transfer 2 of alice was debited with 5.00 USD and refunded with 6.00 USD", totals + "USD"}},
		"a refund of a credited transfer": {func(f forgery) {
			f["alice"] = append(f["alice"], TransferRefunded{noon, 3, usd("7"), "bank/not_open"})
		}, []string{"transfer: transfer 3 of alice was credited and refunded", totals + "USD"}},
		"a refund without a refused credit": {func(f forgery) {
			f["nobody"] = []Event{nil}
		}, []string{"transfer: transfer 2 of alice was refunded but never refused"}},
		"a refund for another reason": {func(f forgery) {
			f["alice"][5] = TransferRefunded{noon, 2, usd("5"), "bank/closed"}
		}, []string{"transfer: transfer 2 of alice was refused for bank/not_open and refunded for bank/closed"}},
		"a refund and a completion": {func(f forgery) {
			f["alice"] = append(f["alice"], TransferCompleted{noon, 2, usd("5")})
		}, []string{"transfer: transfer 2 of alice was completed and refunded"}},
		"refused and credited": {func(f forgery) {
			f["nobody"] = append(f["nobody"], Opened{cause(""), money.USD, ""}, Credited{noon, plain(usd("5")), sent("alice", 2), "alice"})
		}, []string{"transfer: transfer 2 of alice was credited and refused", totals + "USD"}},
		"a refund without a debit": {func(f forgery) {
			f["alice"] = append(f["alice"], TransferRefunded{noon, 9, usd("7"), "bank/not_open"})
		}, []string{"transfer: transfer 9 of alice has ended but was never debited", totals + "USD"}},
		"a completion without a debit": {func(f forgery) {
			f["alice"] = append(f["alice"], TransferCompleted{noon, 9, usd("0")})
		}, []string{"transfer: transfer 9 of alice has ended but was never debited"}},
		"a skipped transfer number": {func(f forgery) {
			f["alice"] = append(f["alice"], TransferStarted{cause(""), plain(usd("1")), 6, "bob"})
		}, []string{"transfer: account alice: its transfer 5 has the number 6"}},
		"a repeated transfer number": {func(f forgery) {
			f["alice"] = append(f["alice"], TransferStarted{cause(""), plain(usd("1")), 4, "bob"})
		}, []string{"transfer: transfer 4 of alice was debited 2 times", totals + "USD"}},

		"a request applied twice": {func(f forgery) {
			f["alice"] = append(f["alice"], Deposited{cause("r1"), plain(usd("1"))})
		}, []string{"request: account alice: request r1 was applied twice"}},
		"a line applied twice": {func(f forgery) {
			f["alice"] = append(f["alice"], Deposited{cause(requests.FileLine(fileA, 3)), plain(usd("1"))})
		}, []string{"request: account alice: request " + fileA + ":3 was applied twice"}},
		"a line out of order": {func(f forgery) {
			f["alice"] = append(f["alice"], Deposited{cause(requests.FileLine(fileA, 1)), plain(usd("1"))})
		}, []string{"request: account alice: line 1 of file " + fileA + " was applied after line 3"}},
		"a line applied to two accounts": {func(f forgery) {
			f["bob"] = append(f["bob"], Deposited{cause(requests.FileLine(fileA, 3)), plain(twd("1"))})
		}, []string{"request: line 3 of file " + fileA + " was applied to two accounts"}},

		"opened twice": {func(f forgery) {
			f["bob"] = append(f["bob"], f["bob"][0])
		}, []string{"life: account bob was opened twice"}},
		"used before it was open": {func(f forgery) {
			f["dora"] = []Event{Deposited{cause(""), plain(twd("1"))}}
		}, []string{"life: account dora was not open yet"}},
		"used after it was closed": {func(f forgery) {
			f["carol"] = append(f["carol"], Deposited{cause(""), plain(twd("1"))})
		}, []string{"life: account carol was closed before"}},
		"closed with a balance": {func(f forgery) {
			f["bob"] = append(f["bob"], Closed{cause("")})
		}, []string{"life: account bob was closed with 868.05 TWD"}},
		"opened in no currency": {func(f forgery) {
			f["dora"] = []Event{Opened{cause(""), "", ""}}
		}, []string{"life: account dora was opened in \"\""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := honest()
			c.falsify(f)
			b := f.write(t)
			report, err := b.audit(t.Context())
			expect(t, report, err, c.want...)
			for _, v := range report.violations {
				sum := v.rule == "totals" || strings.HasSuffix(v.text, "is pending but never debited")
				if len(v.shown) == 0 && !sum || slices.ContainsFunc(v.shown, func(s string) bool { return strings.Contains(s, "missing") }) {
					t.Errorf("violation %s: %s shows the events %q, want existing events", v.rule, v.text, v.shown)
				}
			}
		})
	}
}

// A fence has a sequence number but is not an event.
func TestAuditCountsFences(t *testing.T) {
	t.Parallel()
	f := honest()
	f["bob"] = slices.Insert(f["bob"], 2, nil, nil)
	report, err := f.write(t).audit(t.Context())
	expect(t, report, err)
	if report.events != 18 {
		t.Errorf("the audit counts %d events, want 18", report.events)
	}
}

// torn is a journal that has lost records.
type torn struct {
	journal.Journal
	id   string
	lost uint64
	more uint64 // number of additional events that the journal counts
}

func (j torn) Unwrap() journal.Journal { return j.Journal }

func (j torn) Replay(ctx context.Context, id string, from, to uint64) iter.Seq2[journal.Event, error] {
	return func(yield func(journal.Event, error) bool) {
		for e, err := range j.Journal.Replay(ctx, id, from, to) {
			if (id != j.id || e.SequenceNr != j.lost) && !yield(e, err) {
				return
			}
		}
	}
}

func (j torn) HighestSequenceNr(ctx context.Context, id string) (uint64, error) {
	n, err := j.Journal.HighestSequenceNr(ctx, id)
	if id == j.id {
		n += j.more
	}
	return n, err
}

// answers returns the states of accounts, and falsifies one of them.
func answers(b *bank, id string, falsify func(*answered)) answerer {
	return func(ctx context.Context, asked string, _ uint64) (answered, error) {
		folded, err := eventsourcing.Fold(ctx, b.runtime, b.typ, asked, eventsourcing.FoldOptions[Event]{})
		if err != nil {
			return answered{}, err
		}
		account := folded.State
		a := answered{opened: account.Opened}
		if a.opened {
			a.view, err = account.View("", noon)
		}
		if asked == id {
			falsify(&a)
		}
		return a, err
	}
}

func TestAuditFindsMissingRecords(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	truth := answers(b, "", nil)
	for _, c := range map[string]struct {
		j    torn
		want string
	}{
		"in the middle":    {torn{id: "account|bob", lost: 2}, "sequence: account bob: event 1 is followed by 3"},
		"at the beginning": {torn{id: "account|bob", lost: 1}, "sequence: account bob: event 0 is followed by 2"},
		"at the end":       {torn{id: "account|bob", lost: 4}, "sequence: account bob: the last event is 3, the journal counts 4"},
		"after the end":    {torn{id: "account|bob", more: 1}, "sequence: account bob: the last event is 4, the journal counts 5"},
	} {
		c.j.Journal = b.journal
		report, err := audit(t.Context(), c.j, b.typ.Events, truth)
		expect(t, report, err, c.want)
	}
}

func TestAuditFindsUnreadableEvents(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	if errs := b.journal.Append(t.Context(), []journal.Write{{ID: "account|bob", Writer: "x", Expect: 4, Events: []journal.Event{
		{SequenceNr: 5, Time: noon, Manifest: "deposited", Payload: []byte{0xc1}},
		{SequenceNr: 6, Time: noon, Manifest: "stolen", Payload: []byte{0x80}},
	}}}); errs != nil {
		t.Fatal(errs)
	}
	report, err := b.audit(t.Context())
	expect(t, report, err, "event: account bob: event 5 cannot be decoded", "event: account bob: event 6 cannot be decoded", "answer: account bob cannot be recovered")
}

// The state of each account must agree with its events.
func TestAuditComparesStates(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	for _, c := range []struct {
		id      string
		falsify func(*answered)
		want    []string
	}{
		{"bob", func(a *answered) { a.view.Balance = twd("868.06") }, []string{"balance: account bob: its events add up to 868.05 TWD, its state has 868.06 TWD", "totals: TWD"}},
		{"bob", func(a *answered) { a.view.Balance = usd("868.05") }, []string{"balance: account bob", "totals: TWD", "totals: USD"}},
		{"bob", func(a *answered) { a.opened = false }, []string{"answer: account bob: open by its events: true, by its state: false", "totals: TWD"}},
		{"nobody", func(a *answered) { a.opened = true }, []string{"answer: account nobody: open by its events: false, by its state: true"}},
		{"carol", func(a *answered) { a.view.Closed = false }, []string{"answer: account carol: closed by its events: true, by its state: false"}},
		{"alice", func(a *answered) { a.view.InFlight = usd("1") }, []string{"answer: account alice: its state has 1.00 USD in flight, its transfers add up to 10.10 USD"}},
		{"alice", func(a *answered) { a.view.Pending[0].Amount = usd("8") }, []string{"transfer: transfer 3 of alice was debited with 7.00 USD, and its source reports 8.00 USD"}},
		{"alice", func(a *answered) { a.view.Pending = a.view.Pending[1:] }, []string{"transfer: transfer 3 of alice has not ended, and its source reports that it is not pending"}},
		{"alice", func(a *answered) { a.view.Pending[0].Transfer = 1 }, []string{"transfer: transfer 1 of alice has ended, and its source reports that it is pending"}},
		{"alice", func(a *answered) { a.view.Pending[0].Transfer = 9 }, []string{"transfer: transfer 9 of alice is pending but never debited"}},
	} {
		report, err := audit(t.Context(), b.journal, b.typ.Events, answers(b, c.id, c.falsify))
		expect(t, report, err, c.want...)
	}
}

// The audit also finds a snapshot that differs from the events.
func TestAuditFindsWrongSnapshot(t *testing.T) {
	t.Parallel()
	s := newStore(t, "inmem:")
	b := startBank(t, s, testRates)
	open(t, b, "alice USD")
	do(t, b, "alice", Deposit{Amount: usd("100")})
	rich := &Account{Opened: true, Balance: usd("1000"), InFlight: usd("0")}
	state, err := stateOf(rich)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Snapshots().Save(t.Context(), snapshot.Snapshot{
		Metadata: snapshot.Metadata{ID: "account|alice", SequenceNr: 2, Time: noon}, Manifest: "state", Payload: state,
	}); err != nil {
		t.Fatal(err)
	}
	report, err := b.audit(t.Context())
	expect(t, report, err, "balance: account alice: its events add up to 100.00 USD, its state has 1000.00 USD (from the snapshot at 2)", "totals: USD")
	stopBank(t, b)
}

func TestAuditCanceled(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.audit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("audit with a canceled context: error %v, want context.Canceled", err)
	}
}

func TestPrintedViolations(t *testing.T) {
	t.Parallel()
	f := honest()
	f["bob"] = append(f["bob"], f["bob"][2])
	report, err := f.write(t).audit(t.Context())
	expect(t, report, err, "credited 2 times")
	var s strings.Builder
	report.print(&s)
	for _, want := range []string{
		"VIOLATION transfer: transfer 1 of alice was credited 2 times\n",
		"    alice #3 2026-07-01T12:00:00Z transfer_started {",
		"    bob #3 2026-07-01T12:00:00Z credited {",
		"    bob #5 2026-07-01T12:00:00Z credited {",
		"VIOLATION totals: USD: accounts 48.90 + in flight 3.10 + desk 68.00 differ from deposits 110.00 - withdrawals 0.00 by 10.00\n",
	} {
		if !strings.Contains(s.String(), want) {
			t.Errorf("%q is missing:\n%s", want, s.String())
		}
	}
	if strings.Contains(s.String(), "OK\n") {
		t.Errorf("a report with violations prints OK:\n%s", s.String())
	}
	for range 200 {
		report.violations = append(report.violations, violation{rule: "test", text: "one more"})
	}
	s.Reset()
	report.print(&s)
	if !strings.Contains(s.String(), fmt.Sprintf("and %d more\n", len(report.violations)-maxShown)) {
		t.Errorf("the number %d of omitted violations is missing in\n%s", len(report.violations)-maxShown, s.String())
	}
}
