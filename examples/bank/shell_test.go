// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
)

func TestShell(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	var out strings.Builder
	s := &shell{bank: b, out: &out}
	const script = `
open alice USD Alice Chen
open bob TWD
deposit alice 100 USD
withdraw alice 321.50 NTD
look up alice in NTD
transfer alice nowhere
transfer alice alice 1 USD
deposit alice ten USD
deposit alice 10 EUR
deposit carol 10 USD
look up carol
close alice
dance
help
quit
deposit alice 1000 USD
`
	if err := s.run(t.Context(), strings.NewReader(script)); err != nil {
		t.Fatal(err)
	}
	want := `balance 0.00 USD
balance 0.00 TWD
balance 100.00 USD
balance 90.03 USD
account      alice
owner        Alice Chen
status       open
balance      90.03 USD
value        2894.46 TWD at 32.15 (test, 2026-07-01T00:00:00Z)
last change  TIME
error: unknown command or wrong arguments; enter "help" for a list
error: the source and the destination of a transfer must differ
error: not an amount: "ten"
error: unknown currency "EUR": expected USD or TWD
error: the account does not exist
error: the account does not exist
error: the balance is not zero
error: unknown command or wrong arguments; enter "help" for a list
` + shellHelp
	got := regexp.MustCompile(`last change  .*`).ReplaceAllString(out.String(), "last change  TIME")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	balance(t, b, "alice", usd("90.03"))
}

func TestShellProgram(t *testing.T) {
	t.Parallel()
	db := "leveldb:" + filepath.Join(t.TempDir(), "data")
	r := call(t.Context(), "open alice USD\ndeposit alice 5 USD\n", "shell", "--journal", db)
	if r.code != exitOK || r.out != "balance 0.00 USD\nbalance 5.00 USD\n" {
		t.Errorf("first shell: %+v, want the balances 0.00 USD and 5.00 USD", r)
	}
	r = call(t.Context(), "open bob USD\ntransfer alice bob 5 USD\nstatement alice\nlookup alice\n", "shell", "--journal", db)
	if r.code != exitOK || !strings.Contains(r.out, "transfer 1, balance 0.00 USD\n") || !strings.Contains(r.out, "transfer 1 to bob\n") {
		t.Errorf("second shell: %+v, want transfer 1 to bob and the balance 0.00 USD", r)
	}
}

func TestShellEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never, hold := io.Pipe()
	defer func() { _ = hold.Close() }()
	s := &shell{bank: newBank(t, testRates), out: io.Discard}
	if err := s.run(ctx, never); err != nil {
		t.Error(err)
	}
}

func TestShellStopsAtLongLine(t *testing.T) {
	t.Parallel()
	s := &shell{bank: newBank(t, testRates), out: io.Discard}
	if err := s.run(t.Context(), strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
		t.Error("run with a line of 1 MiB returned no error")
	}
}

func TestExecuteRejectsUnknownCommand(t *testing.T) {
	t.Parallel()
	b := newBank(t, testRates)
	line, err := parseWords("close", []string{"alice"})
	if err != nil {
		t.Fatal(err)
	}
	line.Command = "dance"
	if _, err := b.execute(t.Context(), line, ""); !errors.Is(err, eventsourcing.ErrInvalid) {
		t.Errorf("unknown command: %v, want ErrInvalid", err)
	}
}
