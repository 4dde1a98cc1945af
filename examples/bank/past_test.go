// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/money"
)

// lines returns all lines of a statement.
func lines(t *testing.T, b *bank, id string) (all []statementLine) {
	t.Helper()
	err := b.statement(t.Context(), id, time.Time{}, time.Time{}, func(l statementLine) error {
		all = append(all, l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// After each event of an account, the look-up shows the running balance of the statement, with
// snapshots and without.
func TestLookupsMatchStatement(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	applyPart(t, b, generated(t, batch.Plan{Accounts: 3, Commands: 240, Seed: 4}), -1)
	snapshots := uint64(0)
	for _, id := range accounts(t, b) {
		if strings.HasPrefix(id, "nobody") {
			continue
		}
		all := lines(t, b, id)
		if len(all) > 0 && all[len(all)-1].Number >= 100 {
			awaitSnapshot(t, b, id)
		}
		if n := len(history(t, b, id)); n != len(all) {
			t.Errorf("%s has %d events and %d lines in the statement, want equal numbers", id, n, len(all))
		}
		for _, l := range all {
			for _, without := range []bool{false, l.Number%9 == 0} {
				folded, err := eventsourcing.Fold(t.Context(), b.runtime, b.typ, id, eventsourcing.FoldOptions[Event]{UpTo: l.Number, DisableSnapshots: without})
				if err != nil {
					t.Fatal(err)
				}
				account := folded.State
				if account.Balance != l.Balance || folded.SequenceNr != l.Number {
					t.Fatalf("%s at %d: %v, want %v as in the statement", id, l.Number, account.Balance, l.Balance)
				}
				snapshots += folded.SnapshotNr
			}
		}
	}
	if snapshots == 0 {
		t.Error("no lookup used a snapshot, want at least 1")
	}
}

func TestStatementOmitsFences(t *testing.T) {
	t.Parallel()
	b := forgery{"alice": {
		Opened{cause(""), money.USD, "Alice"}, nil, Deposited{cause(""), plain(usd("5"))}, nil,
	}}.write(t)
	all := lines(t, b, "alice")
	if len(all) != 2 || all[1].Number != 3 || all[1].Balance != usd("5") {
		t.Errorf("statement with fences: %+v, want 2 lines, the last with number 3 and balance 5.00 USD", all)
	}
	for number, want := range map[uint64]string{1: "0", 2: "0", 3: "5", 4: "5"} {
		seen, err := b.lookup(t.Context(), "alice", pastOf(number, time.Time{}, nil), "")
		if err != nil || seen.view.Balance != usd(want) {
			t.Errorf("lookup at event %d: %+v, error %v, want the balance %s", number, seen, err, want)
		}
	}
}

func TestStatementBetweenTimes(t *testing.T) {
	t.Parallel()
	b := forgery{}.write(t)
	open(t, b, "alice USD")
	for range 5 {
		do(t, b, "alice", Deposit{Amount: usd("1")})
	}
	all := lines(t, b, "alice")
	var some []statementLine
	err := b.statement(t.Context(), "alice", all[2].Time, all[4].Time, func(l statementLine) error {
		some = append(some, l)
		return nil
	})
	if err != nil || len(some) < 3 || some[0].Time.Before(all[2].Time) || some[len(some)-1].Time.After(all[4].Time) {
		t.Errorf("statement between two times: %+v, error %v; want at least 3 lines between the times", some, err)
	}
	if some[0].Balance != usd("2") {
		t.Errorf("the running balance begins with %v, want 2.00 USD", some[0].Balance)
	}
	stop := errors.New("enough")
	if err := b.statement(t.Context(), "alice", time.Time{}, time.Time{}, func(statementLine) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped statement: %v, want the error of the callback", err)
	}
}

func TestStatementOfUnknownAccount(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	for _, id := range []string{"unknown", "nobody"} {
		if err := b.statement(t.Context(), id, time.Time{}, time.Time{}, nil); !errors.Is(err, ErrNotOpen) {
			t.Errorf("statement of %s: error %v, want ErrNotOpen", id, err)
		}
	}
}

func TestPrintedStatement(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	var s strings.Builder
	for _, id := range []string{"alice", "bob", "carol"} {
		if err := b.printStatement(t.Context(), &s, id, time.Time{}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `event  time                  what                change   balance     details
1      2026-07-01T12:00:00Z  opened              0.00     0.00 USD    for Alice
2      2026-07-01T12:00:00Z  deposited           100.00   100.00 USD  
3      2026-07-01T12:00:00Z  transfer started    -10.00   90.00 USD   transfer 1 to bob
4      2026-07-01T12:00:00Z  transfer started    -5.00    85.00 USD   transfer 2 to nobody
5      2026-07-01T12:00:00Z  transfer completed  0.00     85.00 USD   transfer 1
6      2026-07-01T12:00:00Z  transfer refunded   5.00     90.00 USD   transfer 2: bank/not_open
7      2026-07-01T12:00:00Z  transfer started    -7.00    83.00 USD   transfer 3 to bob
8      2026-07-01T12:00:00Z  transfer started    -3.10    79.90 USD   transfer 4 to bob, 100.00 TWD at 0.031 (test, 2026-07-01T12:00:00Z)
9      2026-07-01T12:00:00Z  withdrawn           -31.00   48.90 USD   1000.00 TWD at 0.031 (test, 2026-07-01T12:00:00Z)
event  time                  what                change   balance     details
1      2026-07-01T12:00:00Z  opened              0.00     0.00 TWD    for Bob
2      2026-07-01T12:00:00Z  deposited           321.50   321.50 TWD  10.00 USD at 32.15 (test, 2026-07-01T12:00:00Z)
3      2026-07-01T12:00:00Z  credited            321.50   643.00 TWD  transfer 1 from alice, 10.00 USD at 32.15 (test, 2026-07-01T12:00:00Z)
4      2026-07-01T12:00:00Z  credited            225.05   868.05 TWD  transfer 3 from alice, 7.00 USD at 32.15 (test, 2026-07-01T12:00:00Z)
event  time                  what                change   balance     details
1      2026-07-01T12:00:00Z  opened              0.00     0.00 TWD    for Carol
2      2026-07-01T12:00:00Z  closed              0.00     0.00 TWD    
`
	if got := columns(s.String()); got != columns(want) {
		t.Errorf("got\n%s\nwant\n%s", s.String(), want)
	}
}

// columns removes the padding of columns.
func columns(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}

func TestPastLookups(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	for name, c := range map[string]struct {
		id      string
		past    eventsourcing.FoldOptions[Event]
		want    string
		pending int
		number  uint64
	}{
		"now":                       {"alice", pastOf(0, time.Time{}, nil), "48.90", 2, 9},
		"after event 2":             {"alice", pastOf(2, time.Time{}, nil), "100", 0, 2},
		"after event 4":             {"alice", pastOf(4, time.Time{}, nil), "85", 2, 4},
		"far beyond the end":        {"alice", pastOf(99, time.Time{}, nil), "48.90", 2, 9},
		"at noon":                   {"alice", pastOf(0, noon, nil), "48.90", 2, 9},
		"without the deposit":       {"alice", pastOf(0, time.Time{}, []uint64{2}), "-51.10", 2, 9},
		"without the withdrawal":    {"alice", pastOf(0, time.Time{}, []uint64{9}), "79.90", 2, 9},
		"without credited transfer": {"alice", pastOf(0, time.Time{}, []uint64{3}), "58.90", 2, 9},
		"without refused transfer":  {"alice", pastOf(0, time.Time{}, []uint64{4}), "48.90", 2, 9},
		"without the refund":        {"alice", pastOf(0, time.Time{}, []uint64{6}), "43.90", 3, 9},
		"without pending transfer":  {"alice", pastOf(0, time.Time{}, []uint64{8}), "52", 1, 9},
		"after 6, without 3 and 6":  {"alice", pastOf(6, time.Time{}, []uint64{3, 6}), "95", 1, 6},
	} {
		seen, err := b.lookup(t.Context(), c.id, c.past, "")
		if err != nil || seen.view.Balance != usd(c.want) || len(seen.view.Pending) != c.pending || seen.number != c.number {
			t.Errorf("%s: got %+v, error %v, want the balance %s, %d pending transfers and event %d", name, seen, err, c.want, c.pending, c.number)
		}
	}
	for name, past := range map[string]eventsourcing.FoldOptions[Event]{
		"before it was opened": pastOf(0, noon.Add(-time.Second), nil),
		"never opened":         pastOf(0, time.Time{}, []uint64{1}),
	} {
		if seen, err := b.lookup(t.Context(), "alice", past, ""); !errors.Is(err, ErrNotOpen) {
			t.Errorf("%s: got %+v, error %v, want ErrNotOpen", name, seen, err)
		}
	}
	if n := b.runtime.Resident()[AccountTypeName]; n != 0 {
		t.Errorf("past lookups have started %d accounts, want 0", n)
	}
}

func TestPrintedLookUp(t *testing.T) {
	t.Parallel()
	b := honest().write(t)
	var s strings.Builder
	seen, err := b.lookup(t.Context(), "alice", pastOf(8, time.Time{}, nil), money.TWD)
	if err != nil {
		t.Fatal(err)
	}
	seen.print(&s, "alice")
	const want = `account      alice
owner        Alice
status       open
balance      79.90 USD
value        2568.78 TWD at 32.15 (test, 2026-07-01T00:00:00Z)
in flight    10.10 USD
             transfer 3, 7.00 USD to bob
             transfer 4, 3.10 USD to bob
last change  2026-07-01T12:00:00Z
event        8
`
	if s.String() != want {
		t.Errorf("got\n%s\nwant\n%s", s.String(), want)
	}
}

func TestParseMoment(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-07-01T12:00:00Z":        "2026-07-01T12:00:00Z",
		"2026-07-01T12:00:00.5+08:00": "2026-07-01T04:00:00.5Z",
		"2026-07-01":                  "2026-07-01T23:59:59.999999Z",
	} {
		var m moment
		if err := m.UnmarshalText([]byte(text)); err != nil || m.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%s: got %v, error %v, want %s", text, m, err, want)
		}
	}
	var from beginning
	if err := from.UnmarshalText([]byte("2026-07-01")); err != nil || from.Format(time.RFC3339) != "2026-07-01T00:00:00Z" {
		t.Errorf("start of a date: got %v, error %v; want 2026-07-01T00:00:00Z", from, err)
	}
	if err := from.UnmarshalText([]byte("2026-07-01T12:00:00Z")); err != nil || !from.Equal(noon) {
		t.Errorf("start at a time: got %v, error %v; want %v", from, err, noon)
	}
	for _, text := range []string{"", "yesterday", "2026-13-01", "12:00"} {
		var m moment
		if m.UnmarshalText([]byte(text)) == nil || from.UnmarshalText([]byte(text)) == nil {
			t.Errorf("the invalid time %q was parsed as %v", text, m)
		}
	}
}

// Commands that only read change nothing in the journal.
func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	db := "leveldb:" + filepath.Join(t.TempDir(), "data")
	file := written(t, "1,open,alice,,USD,Alice\n2,open,bob,,TWD,Bob\n3,deposit,alice,10,USD,\n4,transfer,alice,1,USD,bob\n")
	must(t, exitOK, "apply", file, "--journal", db)
	for range 2 {
		if r := must(t, exitOK, "lookup", "alice", "--journal", db, "--at-seq", "2"); !strings.Contains(r.out, "balance      10.00 USD\n") {
			t.Errorf("lookup after event 2 printed\n%s\nwant the balance 10.00 USD", r.out)
		}
		if r := must(t, exitOK, "lookup", "alice", "--journal", db, "--without", "2,3", "--in", "NTD"); !strings.Contains(r.out, "balance      0.00 USD\nvalue        0.00 TWD at 32.15") {
			t.Errorf("lookup without events 2 and 3 printed\n%s\nwant the balance 0.00 USD and the value in TWD", r.out)
		}
		if r := must(t, exitOK, "statement", "bob", "--journal", db); strings.Count(r.out, "\n") != 3 {
			t.Errorf("the statement has %d lines, want 3:\n%s", strings.Count(r.out, "\n"), r.out)
		}
		if r := must(t, exitOK, "statement", "bob", "--journal", db, "--to", "2001-01-01"); strings.Count(r.out, "\n") != 1 {
			t.Errorf("the statement up to 2001 has %d lines, want 1:\n%s", strings.Count(r.out, "\n"), r.out)
		}
		if r := must(t, exitOK, "audit", "--journal", db); !strings.Contains(r.out, "2 accounts, 6 events;") {
			t.Errorf("audit: got\n%s\nwant 2 accounts and 6 events", r.out)
		}
	}
}
