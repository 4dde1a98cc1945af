// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/store"
)

// testRates converts both ways. The rate from TWD to USD is not the inverse of the other.
const testRates = `{"source": "test", "rates": [
	{"pair": "USD/TWD", "rate": "32.15", "as_of": "2026-07-01T00:00:00Z"},
	{"pair": "TWD/USD", "rate": "0.031", "as_of": "2026-07-01T00:00:00Z"}
]}`

// oneWay does not convert to USD.
const oneWay = `{"source": "test", "rates": [{"pair": "USD/TWD", "rate": "32.15", "as_of": "2026-07-01T00:00:00Z"}]}`

func parseRates(t *testing.T, text string) *rates.Table {
	t.Helper()
	table, err := rates.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newStore(t *testing.T, name string) store.DB {
	t.Helper()
	s, err := openStore(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// startBank opens a bank, which the test closes.
func startBank(t *testing.T, s store.DB, rateTable string) *bank {
	t.Helper()
	b, err := openBank(s, parseRates(t, rateTable), slog.New(slog.DiscardHandler), eventsourcing.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func stopBank(t *testing.T, b *bank) {
	t.Helper()
	if err := b.close(); err != nil {
		t.Error(err)
	}
}

// newBank opens a bank in memory and closes it at the end of the test.
func newBank(t *testing.T, rateTable string) *bank {
	t.Helper()
	s := newStore(t, "inmem:")
	b := startBank(t, s, rateTable)
	t.Cleanup(func() {
		stopBank(t, b)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func usd(text string) money.Amount { return amount(text, money.USD) }
func twd(text string) money.Amount { return amount(text, money.TWD) }

func amount(text string, c money.Currency) money.Amount {
	a, err := money.Parse(text, c)
	if err != nil {
		panic(err)
	}
	return a
}

// do sends a command and fails the test if the command fails.
func do[R any](t *testing.T, b *bank, id string, command eventsourcing.Request[Account, R]) R {
	t.Helper()
	answer, err := eventsourcing.Ask(t.Context(), b.account(id), command)
	if err != nil {
		t.Fatalf("%s: %+v: error %v, want a reply", id, command, err)
	}
	return answer
}

// refused sends a command and fails the test unless the command is refused with the error.
func refused[R any](t *testing.T, b *bank, id string, want error, command eventsourcing.Request[Account, R]) {
	t.Helper()
	if answer, err := eventsourcing.Ask(t.Context(), b.account(id), command); !errors.Is(err, want) {
		t.Errorf("%s: %+v: %+v, %v; want %v", id, command, answer, err, want)
	}
}

// open opens accounts: "alice USD".
func open(t *testing.T, b *bank, accounts ...string) {
	t.Helper()
	for _, a := range accounts {
		id, currency, _ := strings.Cut(a, " ")
		do(t, b, id, Open{Currency: money.Currency(currency), Owner: "owner of " + id})
	}
}

// stored is an event with its sequence number in the journal.
type stored struct {
	nr    uint64
	event Event
}

// records returns the records of an account.
func records(t *testing.T, b *bank, id string) (all []journal.Event) {
	t.Helper()
	for record, err := range b.journal.Replay(t.Context(), journal.JoinID(AccountTypeName, id), 1, journal.MaxSequenceNr) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record)
	}
	return all
}

// history returns the events of an account.
func history(t *testing.T, b *bank, id string) (events []stored) {
	t.Helper()
	for _, record := range records(t, b, id) {
		if record.IsFence() {
			continue
		}
		event, err := b.typ.Events.Decode(record.Manifest, record.Payload)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, stored{record.SequenceNr, event.(Event)}) //nolint:errcheck,forcetypeassert // it is one
	}
	return events
}

// names returns the types of an account's events.
func names(t *testing.T, b *bank, id string) string {
	t.Helper()
	var all []string
	for _, e := range history(t, b, id) {
		all = append(all, reflect.TypeOf(e.event).Name())
	}
	return strings.Join(all, " ")
}

// countEvents returns the number of an account's events of one type.
func countEvents[E Event](t *testing.T, b *bank, id string) (n int) {
	t.Helper()
	for _, e := range history(t, b, id) {
		if _, ok := e.event.(E); ok {
			n++
		}
	}
	return n
}

// await waits until a look-up matches.
func await(t *testing.T, b *bank, id, subject string, done func(View) bool) View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		view, err := eventsourcing.Ask(ctx, b.account(id), Lookup{})
		if err == nil && done(view) {
			return view
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: timed out waiting for %s: %+v, %v", id, subject, view, err)
		}
	}
}

// awaitSnapshot waits until an account has a snapshot, because the runtime saves snapshots in the
// background.
func awaitSnapshot(t *testing.T, b *bank, id string) {
	t.Helper()
	for {
		folded, err := eventsourcing.Fold(t.Context(), b.runtime, b.typ, id, eventsourcing.FoldOptions[Event]{})
		if err != nil {
			t.Fatal(err)
		}
		if folded.SnapshotNr > 0 {
			return
		}
		if !sleep(t.Context(), time.Millisecond) {
			t.Fatalf("timed out: %s has no snapshot", id)
		}
	}
}

// settled waits until an account has no pending transfers.
func settled(t *testing.T, b *bank, id string) View {
	t.Helper()
	return await(t, b, id, "the end of its transfers", func(v View) bool { return len(v.Pending) == 0 })
}

func balance(t *testing.T, b *bank, id string, want money.Amount) {
	t.Helper()
	if got := do(t, b, id, Lookup{}).Balance; got != want {
		t.Errorf("%s has %v, want %v", id, got, want)
	}
}

// audited fails the test unless the books are in order.
func audited(t *testing.T, b *bank) *auditReport {
	t.Helper()
	report, err := b.audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.violations) > 0 {
		var s strings.Builder
		report.print(&s)
		t.Error(s.String())
	}
	return report
}

func id(n int) string { return fmt.Sprintf("a%d", n) }

// stateOf returns the state in a snapshot.
func stateOf(a *Account) ([]byte, error) {
	state, err := codec.NewState(reflect.TypeFor[*Account]())
	if err != nil {
		return nil, err
	}
	return state.Encode(a)
}
