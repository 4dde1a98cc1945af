// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
)

// result is the result of a run of the program.
type result struct {
	code        int
	out, errout string
}

// call runs the program.
func call(ctx context.Context, stdin string, args ...string) result {
	var out, errout bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &out, &errout)
	return result{code, out.String(), errout.String()}
}

// must runs the program and fails the test unless it exits with the code.
func must(t *testing.T, code int, args ...string) result {
	t.Helper()
	r := call(t.Context(), "", args...)
	if r.code != code {
		t.Fatalf("bank %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.errout)
	}
	return r
}

// generated writes a file of commands.
func generated(t *testing.T, plan batch.Plan) string {
	t.Helper()
	var b bytes.Buffer
	if err := batch.Generate(&b, plan); err != nil {
		t.Fatal(err)
	}
	return written(t, b.String())
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "commands.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// counts parses the final table of apply.
func counts(out string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 1 {
			all[strings.Join(words[:len(words)-1], " ")] = words[len(words)-1]
		}
	}
	return all
}

func TestApplyAndAudit(t *testing.T) {
	t.Parallel()
	commands := 300
	if effort.Soak() {
		commands = 2000
	}
	for _, confluent := range []bool{true, false} {
		file := generated(t, batch.Plan{Accounts: 60, Commands: commands, Seed: 1, Confluent: confluent})
		db := "leveldb:" + filepath.Join(t.TempDir(), "data")
		first := counts(must(t, exitOK, "apply", file, "--journal", db).out)
		if first["bad lines"] != "0" || first["transfers in flight"] != "0" || first["done"] == "" {
			t.Errorf("first run: %v, want done lines, 0 bad lines and 0 transfers in flight", first)
		}
		if r := must(t, exitOK, "audit", "--journal", db); !strings.HasSuffix(r.out, "\nOK\n") {
			t.Errorf("audit printed\n%s\nwant OK at the end", r.out)
		}
		before := must(t, exitOK, "audit", "--journal", db).out
		again := counts(must(t, exitOK, "apply", file, "--journal", db).out)
		after := must(t, exitOK, "audit", "--journal", db).out
		if !confluent {
			continue // the last line of an account may be refused before a transfer arrives, and succeed in the next run
		}
		if again["done"] != "0" {
			t.Errorf("second run: %v, want 0 done lines", again)
		}
		if after != before {
			t.Errorf("the second run changed the audit: before\n%safter\n%s", before, after)
		}
	}
}

// stopper ends a run after a number of executed lines.
type stopper struct {
	after  int64
	cancel context.CancelFunc
	count  atomic.Int64
}

func (s *stopper) stop() {}

func (s *stopper) add() {
	if s.count.Add(1) == s.after {
		s.cancel()
	}
}

// applyPart applies a file to a bank until a number of lines is executed.
func applyPart(t *testing.T, b *bank, file string, after int64) *tally {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	hash, _, err := survey(f)
	if err != nil {
		t.Fatal(err)
	}
	rejects := &rejects{path: file + ".rejects.csv"}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	a := &applier{
		bank: b, hash: hash, rejects: rejects, logger: slog.New(slog.DiscardHandler), fail: cancel,
		progress: &stopper{after: after, cancel: func() { cancel(nil) }},
	}
	a.run(ctx, batch.Read(f), 32)
	if err := rejects.Close(); err != nil {
		t.Error(err)
	}
	return &a.tally
}

// Runs that are interrupted repeatedly execute each line once, with the same result as an
// uninterrupted run.
func TestApplyContinues(t *testing.T) {
	t.Parallel()
	file := generated(t, batch.Plan{Accounts: 30, Commands: 600, Seed: 5, Confluent: true})
	calm := newBank(t, testRates)
	applyPart(t, calm, file, -1)

	dir := "leveldb:" + filepath.Join(t.TempDir(), "data")
	done := 0
	for _, after := range []int64{1, 100, 377, 560, -1} {
		s := newStore(t, dir)
		b := startBank(t, s, testRates)
		done += applyPart(t, b, file, after).done
		if after < 0 {
			// Pending lines of a stopped run may have been executed without an answer.
			if want := applied(t, calm); done > want || applied(t, b) != want {
				t.Errorf("%d executed lines left %d events, want %d", done, applied(t, b), want)
			}
			for id, want := range balances(t, calm) {
				balance(t, b, id, want)
			}
		}
		stopBank(t, b)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		must(t, exitOK, "audit", "--journal", dir)
	}
}

// accounts are the IDs of all accounts.
func accounts(t *testing.T, b *bank) (ids []string) {
	t.Helper()
	lister, _ := journal.As[journal.IDLister](b.journal)
	for pid, err := range lister.PersistenceIDs(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		_, id := journal.SplitID(pid)
		ids = append(ids, id)
	}
	return ids
}

func balances(t *testing.T, b *bank) map[string]money.Amount {
	t.Helper()
	all := make(map[string]money.Amount)
	for _, id := range accounts(t, b) {
		if view, err := eventsourcing.Ask(t.Context(), b.account(id), Lookup{}); err == nil {
			all[id] = view.Balance
		}
	}
	return all
}

// applied counts the events of the lines of a file.
func applied(t *testing.T, b *bank) (n int) {
	t.Helper()
	for _, id := range accounts(t, b) {
		for _, e := range history(t, b, id) {
			var request string
			switch e := e.event.(type) {
			case Opened:
				request = e.Request
			case Deposited:
				request = e.Request
			case Withdrawn:
				request = e.Request
			case TransferStarted:
				request = e.Request
			case Closed:
				request = e.Request
			}
			if request != "" {
				n++
			}
		}
	}
	return n
}

// With one worker that waits for each transfer, all runs store the same events in the same order.
func TestSettle(t *testing.T) {
	t.Parallel()
	file := generated(t, batch.Plan{Accounts: 12, Commands: 200, Seed: 9})
	var first string
	for range 2 {
		dir := "leveldb:" + filepath.Join(t.TempDir(), "data")
		must(t, exitOK, "apply", file, "--journal", dir, "--workers", "1", "--settle")
		s := newStore(t, dir)
		b := startBank(t, s, testRates)
		var all strings.Builder
		for _, id := range accounts(t, b) {
			fmt.Fprintln(&all, id, names(t, b, id))
		}
		stopBank(t, b)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = all.String()
		} else if first != all.String() {
			t.Errorf("events of the first run\n%s\nevents of this run\n%s\nwant equal events", first, all.String())
		}
	}
}

const mixed = `id,command,account,amount,currency,to
1,open,alice,,USD,Alice
2,deposit,alice,10,USD,
3,deposit,alice,a lot,USD,
4,deposit,alice,1.005,USD,
5,deposit,alice,1,EUR,
6,withdraw,alice,100,USD,

8,steal,alice,1,USD,
9,withdraw,alice,1,USD,
10,deposit,alice,99999999999999999999,USD,
11,deposit,` + "\xff" + `,1,USD,
`

func TestBadLinesAreReported(t *testing.T) {
	t.Parallel()
	file := written(t, mixed)
	r := must(t, exitBadLines, "apply", file, "--journal", "inmem:")
	got := counts(r.out)
	delete(got, "commands a second")
	want := map[string]string{
		"done": "3", "refused": "4", "bank/too_fine": "1", "bank/unknown_currency": "1", "bank/overflow": "1", "bank/insufficient_funds": "1",
		"bad lines": "3", "transfers in flight": "0", "lines that were refused or bad:": file + ".rejects.csv",
	}
	if !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	if want := fmt.Sprintf("bank: 3 bad lines, see %s.rejects.csv\n", file); r.errout != want {
		t.Errorf("stderr %q, want %q", r.errout, want)
	}
	data, err := os.ReadFile(file + ".rejects.csv")
	if err != nil {
		t.Fatal(err)
	}
	rejected := slices.Sorted(strings.Lines(string(data)))
	wantRejects := []string{
		"11,bank/overflow,line 11: amount: amount too large: 99999999999999999999\n",
		"12,bad_line,line 12: not valid UTF-8\n",
		`4,bad_line,"line 4: amount: not an amount: ""a lot"""` + "\n",
		"5,bank/too_fine,line 5: amount: amount finer than the minor unit: 1.005 has more than 2 decimal places\n",
		`6,bank/unknown_currency,"line 6: currency: unknown currency ""EUR"": expected USD or TWD"` + "\n",
		"7,bank/insufficient_funds,the balance is too small\n",
		`9,bad_line,"line 9: command: ""steal"": expected open, deposit, withdraw, transfer or close"` + "\n",
		"line,code,reason\n",
	}
	if !slices.Equal(rejected, wantRejects) {
		t.Errorf("the rejects are\n%s\nwant\n%s", strings.Join(rejected, ""), strings.Join(wantRejects, ""))
	}
}

// A second run reports the lines of the first one as repeated, and keeps them in the rejects. Lines of
// another bank replace them.
func TestRepeatedLines(t *testing.T) {
	t.Parallel()
	const lines = "1,open,alice,,USD,\n2,withdraw,alice,5,USD,\n3,deposit,alice,1,USD,\n4,deposit,alice,1,EUR,\n5,deposit,alice,2,USD,\n6,withdraw,alice,9,USD,\n"
	const rejected = "line,code,reason\n" +
		"2,bank/insufficient_funds,the balance is too small\n" +
		"4,bank/unknown_currency,\"line 4: currency: unknown currency \"\"EUR\"\": expected USD or TWD\"\n" +
		"6,bank/insufficient_funds,the balance is too small\n"
	file := written(t, lines)
	db := "leveldb:" + filepath.Join(t.TempDir(), "data")
	apply := func(journal string, want map[string]string) {
		t.Helper()
		got := counts(must(t, exitOK, "apply", file, "--journal", journal).out)
		delete(got, "commands a second")
		want["bad lines"], want["transfers in flight"], want["lines that were refused or bad:"] = "0", "0", file+".rejects.csv"
		if !maps.Equal(got, want) {
			t.Errorf("counts %v, want %v", got, want)
		}
		data, err := os.ReadFile(file + ".rejects.csv")
		if err != nil || string(data) != rejected {
			t.Errorf("the rejects are\n%s%v, want\n%s", data, err, rejected)
		}
	}
	first := map[string]string{"done": "3", "refused": "3", "bank/insufficient_funds": "2", "bank/unknown_currency": "1"}
	again := map[string]string{"done": "0", "repeated": "4", "refused": "2", "bank/insufficient_funds": "1", "bank/unknown_currency": "1"}
	apply(db, first)
	apply(db, again)
	apply(db, again)
	if err := os.WriteFile(file+".rejects.csv", []byte("line,code,reason\n3,bank/closed,of another bank\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	apply("inmem:", first)
}

func TestLongAccountID(t *testing.T) {
	t.Parallel()
	file := written(t, "1,open,"+strings.Repeat("x", 600)+",,USD,\n2,open,alice,,USD,\n")
	got := counts(must(t, exitBadLines, "apply", file, "--journal", "inmem:").out)
	if got["done"] != "1" || got["bad lines"] != "1" {
		t.Errorf("counts %v, want 1 done and 1 bad line", got)
	}
}

func TestEventLog(t *testing.T) {
	t.Parallel()
	file := generated(t, batch.Plan{Accounts: 20, Commands: 500, Seed: 2})
	db := "leveldb:" + filepath.Join(t.TempDir(), "data")
	log := filepath.Join(t.TempDir(), "log")
	got := counts(must(t, exitOK, "apply", file, "--journal", db, "--log", log).out)
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[uint64]string)
	outcomes, events := make(map[string]int), make(map[string]int)
	for line := range strings.Lines(string(data)) {
		var r logRecord
		if err = json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("the record %q is not JSON: %v", line, err)
		}
		events[r.Event]++
		if r.Event == "line" {
			lines[r.Line] = r.Outcome
			outcomes[r.Outcome]++
		}
		if r.Time.IsZero() || r.Account == "" {
			t.Errorf("the record has no time or no account: %s", line)
		}
	}
	if len(lines) != 500 || events["line"] != 500 {
		t.Errorf("the log has %d records of lines for %d different lines, want 500 for 500", events["line"], len(lines))
	}
	if fmt.Sprint(outcomes["done"]) != got["done"] || fmt.Sprint(outcomes["refused"]) != got["refused"] {
		t.Errorf("the log has the outcomes %v, the table of apply has %v; want equal numbers of done and refused lines", outcomes, got)
	}
	if events["recovery_started"] == 0 || events["recovery_started"] != events["recovery_ended"] {
		t.Errorf("the log has the events %v, want at least 1 recovery and as many ended ones as started ones", events)
	}
	if n := events["transfer_debited"]; n == 0 || events["transfer_settled"] != n || events["transfer_credited"] == 0 || events["transfer_credited"] > n {
		t.Errorf("the log has the events %v, want as many settled as debited transfers, and at least 1 credited one", events)
	}

	// The next run appends to the log.
	must(t, exitOK, "apply", file, "--journal", db, "--log", log)
	more, err := os.ReadFile(log)
	if err != nil || !bytes.HasPrefix(more, data) || len(more) == len(data) {
		t.Errorf("the log has %d bytes after the second run and %d bytes before it, error %v; want added bytes", len(more), len(data), err)
	}
}

func TestInterruptedRun(t *testing.T) {
	t.Parallel()
	file := generated(t, batch.Plan{Accounts: 5, Commands: 100, Seed: 2})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := call(ctx, "", "apply", file, "--journal", "inmem:")
	if r.code != exitInterrupted || !strings.Contains(r.errout, "run the command again") {
		t.Errorf("interrupted run: %+v, want exit code %d and \"run the command again\"", r, exitInterrupted)
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	tl := tally{done: 97_139, repeated: 1200, bad: 3, elapsed: 7_500 * time.Millisecond, rejects: "commands.csv.rejects.csv"}
	for range 1034 {
		tl.add("refused", "bank/insufficient_funds")
	}
	tl.add("refused", "bank/closed")
	var b strings.Builder
	tl.print(&b)
	const want = `                     done  97,139
                 repeated   1,200
                  refused   1,035
              bank/closed       1
  bank/insufficient_funds   1,034
                bad lines       3
      transfers in flight       0
        commands a second  13,250
lines that were refused or bad: commands.csv.rejects.csv
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567", -123456: "-123,456"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]int{
		"": 0, "x": 1, "x\n": 1, "x\ny": 2, batch.Header: 0, batch.Header + "\n": 0, batch.Header + "\nx\ny": 2,
	} {
		if _, n, err := survey(strings.NewReader(file)); n != want || err != nil {
			t.Errorf("survey of %q = %d commands, error %v; want %d", file, n, err, want)
		}
	}
}
