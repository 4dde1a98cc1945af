// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/money"
)

func Example() {
	file := strings.NewReader(`id,command,account,amount,currency,to
1,open,alice,,USD,Alice Chen
2,deposit,alice,100.00,USD,
3,deposit,alice,a lot,USD,
`)
	for line, err := range batch.Read(file) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(line.Number, line.Command, line.Account, line.Amount)
	}
	// Output:
	// 2 open alice 0.00
	// 3 deposit alice 100.00 USD
	// line 4: amount: not an amount: "a lot"
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]batch.Line{
		"7,open,alice,,TWD,Alice Chen":        {ID: "7", Command: batch.Open, Account: "alice", Currency: money.TWD, To: "Alice Chen"},
		",open,alice,,TWD,":                   {Command: batch.Open, Account: "alice", Currency: money.TWD},
		`1,open,alice,,TWD,"Chen, ""Al"" A."`: {ID: "1", Command: batch.Open, Account: "alice", Currency: money.TWD, To: `Chen, "Al" A.`},
		"2,deposit,bob,12.5,USD,":             {ID: "2", Command: batch.Deposit, Account: "bob", Amount: money.New(1250, money.USD), Currency: money.USD},
		"3,withdraw,a b|c,-1,TWD,":            {ID: "3", Command: batch.Withdraw, Account: "a b|c", Amount: money.New(-100, money.TWD), Currency: money.TWD},
		"4,transfer,bob,1.00,USD,alice":       {ID: "4", Command: batch.Transfer, Account: "bob", Amount: money.New(100, money.USD), Currency: money.USD, To: "alice"},
		"5,deposit,bob,1,NTD,":                {ID: "5", Command: batch.Deposit, Account: "bob", Amount: money.New(100, money.TWD), Currency: money.TWD},
		"5,close,bob,,,":                      {ID: "5", Command: batch.Close, Account: "bob"},
	} {
		want.Number = 9
		if got, err := batch.Parse(9, text); err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, error %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1,deposit,alice,1,USD":                                 "line 9: 5 fields, expected 6: " + batch.Header,
		"1,deposit,alice,1,USD,,":                               "line 9: 7 fields, expected 6: " + batch.Header,
		`1,deposit,"alice,1,USD,`:                               `line 9: extraneous or missing " in quoted-field`,
		"1,deposit,al\xffice,1,USD,":                            "line 9: not valid UTF-8",
		"1,steal,alice,1,USD,":                                  `line 9: command: "steal": expected open, deposit, withdraw, transfer or close`,
		"1,deposit,,1,USD,":                                     "line 9: account: missing",
		"1,deposit, ,1,USD,":                                    "line 9: account: missing",
		"1,deposit,alice,,USD,":                                 "line 9: amount: missing, required by deposit",
		"1,deposit,alice,1e3,USD,":                              `line 9: amount: not an amount: "1e3"`,
		"1,deposit,alice,1,,":                                   "line 9: currency: missing, required by deposit",
		"1,deposit,alice,1,EUR,":                                `line 9: currency: unknown currency "EUR": expected USD or TWD`,
		"1,deposit,alice,1,USD,bob":                             `line 9: to: "bob": not allowed with deposit`,
		"1,transfer,alice,1,USD,":                               "line 9: to: missing, required by transfer",
		"1,open,alice,5,USD,":                                   `line 9: amount: "5": not allowed with open`,
		"1,close,alice,,USD,":                                   `line 9: currency: "USD": not allowed with close`,
		"1,deposit,alice,0.001,USD,":                            "line 9: amount: amount finer than the minor unit: 0.001 has more than 2 decimal places",
		"1,deposit,alice,9" + strings.Repeat("0", 30) + ",USD,": "line 9: amount: amount too large: 9" + strings.Repeat("0", 30),
	} {
		_, err := batch.Parse(9, text)
		bad, ok := errors.AsType[*batch.LineError](err)
		if !ok || err.Error() != want || bad.Text != text {
			t.Errorf("%s:\n%v, want\n%v", text, err, want)
		}
	}
}

// read describes the lines of a file.
func read(r io.Reader) (found []string) {
	for line, err := range batch.Read(r) {
		bad, isBad := errors.AsType[*batch.LineError](err)
		switch {
		case isBad:
			found = append(found, fmt.Sprintf("%d bad", bad.Line))
		case err != nil:
			found = append(found, err.Error())
		default:
			found = append(found, fmt.Sprintf("%d %s %s", line.Number, line.Command, line.Account))
		}
	}
	return found
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, want string }{
		"empty":                       {"", ""},
		"only the header":             {batch.Header, ""},
		"no header":                   {"1,close,a,,,\n", "1 close a"},
		"no final line break":         {batch.Header + "\n1,close,a,,,", "2 close a"},
		"mark and CRLF":               {"\ufeff" + batch.Header + "\r\n1,close,a,,,\r\n", "2 close a"},
		"blank lines":                 {"\n  \n1,close,a,,,\n\n1,close,b,,,\n", "3 close a; 5 close b"},
		"header twice":                {batch.Header + "\n" + batch.Header + "\n", "2 bad"},
		"bad line between good lines": {"x\n1,close,a,,,\ny\n1,close,b,,,", "1 bad; 2 close a; 3 bad; 4 close b"},
		"a quote left open":           {"1,close,\"a,,,\n1,close,b,,,\n", "1 bad; 2 close b"},
		"a break in quotes":           {"1,open,a,,USD,\"x\ny\"\n1,close,b,,,\n", "1 bad; 2 bad; 3 close b"},
		"a line of full size":         {"1,open,a,,USD," + strings.Repeat("x", batch.MaxLine-14) + "\n1,close,b,,,\n", "1 open a; 2 close b"},
		"a line too long":             {"1,open,a,,USD," + strings.Repeat("x", batch.MaxLine) + "\n1,close,b,,,\n", "1 bad; 2 close b"},
		"a line far too long":         {strings.Repeat("x", 5*batch.MaxLine) + "\n1,close,b,,,\n", "1 bad; 2 close b"},
		"a long line at last":         {"1,close,b,,,\n" + strings.Repeat("x", 5*batch.MaxLine), "1 close b; 2 bad"},
	} {
		if got := strings.Join(read(strings.NewReader(c.file)), "; "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestReadStopsAtFileError(t *testing.T) {
	t.Parallel()
	file := io.MultiReader(strings.NewReader("1,close,a,,,\n1,clo"), iotest.ErrReader(errors.New("disk on fire")))
	if got := strings.Join(read(file), "; "); got != "1 close a; line 2: disk on fire" {
		t.Errorf("lines of a file with a read error: %q, want line 1 and the error of line 2", got)
	}
}

func TestReadCanStop(t *testing.T) {
	t.Parallel()
	n := 0
	for _, err := range batch.Read(strings.NewReader("1,close,a,,,\nbad\n1,close,a,,,\n")) {
		if (err != nil) != (n == 1) {
			t.Error(err)
		}
		if n++; n == 2 {
			break
		}
	}
}

func generate(t *testing.T, p batch.Plan) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := batch.Generate(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSameSeedSameFile(t *testing.T) {
	t.Parallel()
	plan := batch.Plan{Accounts: 50, Commands: 2000, Seed: 7}
	first := generate(t, plan)
	if !bytes.Equal(first, generate(t, plan)) {
		t.Error("two runs with the same seed generated different files")
	}
	// Files of earlier versions must be reproducible.
	sum := sha256.Sum256(first)
	if got, want := hex.EncodeToString(sum[:8]), "0e22bbfc4aa0ec6b"; got != want {
		t.Errorf("the file of seed 7 has changed: %s, was %s", got, want)
	}
	plan.Seed++
	if bytes.Equal(first, generate(t, plan)) {
		t.Errorf("the seeds %d and %d generated the same file", plan.Seed-1, plan.Seed)
	}
}

func TestGeneratedFilesCanBeRead(t *testing.T) {
	t.Parallel()
	for _, confluent := range []bool{false, true} {
		commands := map[string]int{}
		lines, opens := 0, true
		for line, err := range batch.Read(bytes.NewReader(generate(t, batch.Plan{Accounts: 100, Commands: 20_000, Seed: 3, Confluent: confluent}))) {
			if err != nil {
				t.Fatal(err)
			}
			if lines++; lines <= 100 && line.Command != batch.Open {
				opens = false
			}
			commands[line.Command]++
		}
		if lines != 20_000 || !opens || len(commands) != 5 {
			t.Errorf("the file has %d lines, opens its accounts first: %v, commands %v; want 20000, true and 5 commands", lines, opens, commands)
		}
	}
}

// In a confluent file, each account pays only from its own deposits, and a closed account takes
// part in no transfer.
func TestConfluentFiles(t *testing.T) {
	t.Parallel()
	type account struct {
		currency money.Currency
		sure     int64
		closed   bool
		received bool
	}
	for seed := range uint64(10) {
		accounts := map[string]*account{}
		for l, err := range batch.Read(bytes.NewReader(generate(t, batch.Plan{Accounts: 60, Commands: 10_000, Seed: seed, Confluent: true}))) {
			if err != nil {
				t.Fatal(err)
			}
			a := accounts[l.Account]
			switch {
			case l.Command == batch.Open && a == nil:
				accounts[l.Account] = &account{currency: l.Currency}
				continue
			case a == nil || a.closed || l.Command == batch.Open:
				continue // the account always refuses this line
			}
			switch l.Command {
			case batch.Deposit:
				if l.Currency == a.currency && l.Amount.Positive() {
					a.sure += l.Amount.Minor()
				}
			case batch.Withdraw, batch.Transfer:
				if l.Amount.Minor() <= 0 || l.Amount.Minor() == 9_000_000_000_000_000 || l.To == l.Account {
					continue // the account always refuses this line
				}
				if a.sure -= l.Amount.Minor(); a.sure < 0 || l.Currency != a.currency {
					t.Fatalf("seed %d: line %d may exceed the balance", seed, l.Number)
				}
				if to := accounts[l.To]; to != nil {
					to.received = true
				}
			case batch.Close:
				a.closed = a.sure == 0
				if a.received {
					t.Fatalf("seed %d: line %d closes an account that may have received a transfer", seed, l.Number)
				}
			}
		}
		for id, a := range accounts {
			if a.closed && a.received {
				t.Fatalf("seed %d: %s is closed and receives a transfer", seed, id)
			}
		}
	}
}

func TestGenerateRefuses(t *testing.T) {
	t.Parallel()
	for _, p := range []batch.Plan{{}, {Accounts: 1}, {Accounts: 5, Commands: 4}, {Accounts: -1, Commands: 4}} {
		if err := batch.Generate(io.Discard, p); err == nil {
			t.Errorf("Generate with the plan %+v returned no error", p)
		}
	}
	full := errors.New("full")
	if err := batch.Generate(failing{full}, batch.Plan{Accounts: 1, Commands: 1}); !errors.Is(err, full) {
		t.Errorf("Generate to a failing writer: error %v, want %v", err, full)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1,open,alice,,USD,Alice", "1,deposit,alice,1,USD,", `1,transfer,"a,b",1.00,TWD,c`, ",,,,,", `"`, "1,close,a,,,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := batch.Parse(3, text)
		if err != nil {
			if bad, ok := errors.AsType[*batch.LineError](err); !ok || bad.Line != 3 || len(bad.Text) > 210 {
				t.Fatalf("Parse(3, %q): error %v, want a LineError of line 3 with a short text", text, err)
			}
			return
		}
		if l.Number != 3 || l.Account == "" || l.Command == batch.Transfer && l.To == "" {
			t.Fatalf("Parse(3, %q) = %+v, want line 3 with an account, and a transfer with a destination", text, l)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(batch.Header + "\n1,open,alice,,USD,Alice\n\n\"\n1,close,a,,,"))
	f.Fuzz(func(t *testing.T, data []byte) {
		most := uint64(bytes.Count(data, []byte("\n")) + 1)
		last := uint64(0)
		for line, err := range batch.Read(bytes.NewReader(data)) {
			number := line.Number
			if bad, ok := errors.AsType[*batch.LineError](err); ok {
				number = bad.Line
			} else if err != nil {
				t.Fatal(err)
			}
			if number <= last || number > most {
				t.Fatalf("Read yields line %d after line %d of a file with %d lines, want rising numbers", number, last, most)
			}
			last = number
		}
	})
}
