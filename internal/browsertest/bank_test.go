// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package browsertest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// hostile is a name that a page must show as text.
const hostile = `<script>alert(1)</script><img src=x onerror=alert(2)>`

// buildBank returns the path of the program of the bank.
func buildBank(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "bank")
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", path, "./examples/bank")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the bank: %v: %s", err, out)
	}
	return path
}

// server is a bank of three branches that runs as a process.
type server struct {
	url  string // of the first branch
	stop func() error
}

func startBank(tb testing.TB, program, journal string) server {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	serve := exec.CommandContext(ctx, program, "serve", "--nodes", "3", "--state", "ddata", "--journal", journal, "--addr", "127.0.0.1:0")
	serve.Cancel = func() error { return serve.Process.Signal(os.Interrupt) }
	var errout bytes.Buffer
	serve.Stderr = &errout
	out, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	found, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if url, ok := strings.CutPrefix(lines.Text(), "branch-1 is open at "); ok {
				found <- url
			}
		}
	}()
	s := server{stop: func() error {
		cancel()
		<-ended
		if failed := serve.Wait(); failed != nil && serve.ProcessState.ExitCode() != 0 {
			return fmt.Errorf("end of the bank: %w: %s", failed, errout.String())
		}
		return nil
	}}
	select {
	case s.url = <-found:
	case <-ended:
		tb.Fatalf("the bank did not start: %v", s.stop())
	}
	return s
}

// send sends a request to the API. The request has an ID or is idempotent, so it is repeated while
// no branch can answer.
func (s server) send(tb testing.TB, path, body string) {
	tb.Helper()
	ctx, stop := context.WithTimeout(tb.Context(), patience)
	defer stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
		if err != nil {
			tb.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			tb.Fatalf("POST %s: %v", path, err)
		}
		text, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			tb.Fatalf("POST %s: %v", path, err)
		}
		if response.StatusCode < 300 {
			return
		}
		if response.StatusCode < 500 {
			tb.Fatalf("POST %s: %s: %s", path, response.Status, text)
		}
	}
}

func (s server) openAccount(tb testing.TB, id, owner string) {
	tb.Helper()
	s.send(tb, "/accounts", fmt.Sprintf(`{"id": %q, "currency": "USD", "owner": %q}`, id, owner))
}

// A customer opens accounts and transfers money. A branch crashes, and no money is lost. An operator
// reads the history of an account in the console, and drains a branch. The name of an owner stays
// text on all pages.
func TestBank(t *testing.T) {
	t.Parallel()
	program, journal := buildBank(t), "leveldb:"+filepath.Join(t.TempDir(), "journal")
	bank := startBank(t, program, journal)
	running := true
	defer func() {
		if !running {
			return
		}
		if err := bank.stop(); err != nil {
			t.Error(err)
		}
	}()
	b := openBrowser(t)

	b.open(bank.url + "/")
	b.fill("open-account", "alice", "open-owner", "Alice Chen", "open-currency", "USD")
	b.click("#open-submit")
	b.wait(`document.querySelector('tr[data-account="alice"]')`)
	b.fill("open-account", "bob", "open-owner", "Bob Lin", "open-currency", "TWD")
	b.click("#open-submit")
	b.wait(`document.querySelector('tr[data-account="bob"]')`)
	b.fill("cash-account", "alice", "cash-amount", "100.00", "cash-currency", "USD")
	b.click("#deposit-submit")
	b.wait(balanceIs("alice", "100.00"))
	b.fill("transfer-account", "alice", "transfer-to", "bob", "transfer-amount", "10.00", "transfer-currency", "USD")
	b.click("#transfer-submit")
	b.wait(`document.querySelector('.transfer[data-state="completed"]')`)
	b.wait(balanceIs("alice", "90.00"))
	b.press("#again-submit")
	b.wait(`document.getElementById("sent")?.textContent === "2"`)
	if stored := eval[string](b, `document.getElementById("stored").textContent`); stored != "1" {
		t.Errorf("a transfer that was sent twice is stored %s times, want once", stored)
	}
	b.fill("transfer-account", "alice", "transfer-to", "nobody", "transfer-amount", "5.00", "transfer-currency", "USD")
	b.click("#transfer-submit")
	b.wait(`document.querySelector('.transfer[data-state="refunded"]')`)
	b.wait(balanceIs("alice", "90.00"))
	b.check("a transfer")

	b.open(bank.url + "/?account=alice")
	past := b.slide()
	b.inspect("bank")

	sums := b.sums()
	b.press("#crash-branch-3")
	b.wait(`document.querySelector('[data-branch="branch-3"]').dataset.state !== "running"`)
	if after := b.sums(); after != sums {
		t.Errorf("after the crash the sums are %s, want %s", after, sums)
	}
	b.inspect("bank-crash")
	b.wait(`!document.querySelector("#accounts .home.moving") && ![...document.querySelectorAll("#accounts .home")].some((h) => h.textContent === "branch-3")`)
	if after := b.sums(); after != sums {
		t.Errorf("after the move of the accounts the sums are %s, want %s", after, sums)
	}
	b.press("#restart-branch-3")
	b.wait(`document.querySelector('[data-branch="branch-3"]').dataset.state === "running"`)
	b.press("#audit-submit")
	b.wait(`document.querySelector("#outcome .badge.good")?.textContent === "OK"`)
	b.check("a crash")

	b.fill("open-account", "mallory", "open-owner", hostile, "open-currency", "USD")
	b.click("#open-submit")
	b.wait(`document.querySelector('[data-account="mallory"] .owner')?.textContent.trim() === ` + strconv.Quote(hostile))
	b.wait(fmt.Sprintf(`document.querySelector("#outcome .event")?.textContent.includes(%q)`, hostile))
	b.open(bank.url + "/?account=mallory")
	for _, part := range []string{"#accounts", "#account-title", "#journal"} {
		b.wait(fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, part, hostile))
	}
	b.inspect("bank with the account of a hostile owner")
	for i := range 12 { // accounts of many shards, so that each branch has some
		bank.openAccount(t, fmt.Sprintf("a%02d", i), "Alice Chen")
	}
	b.console(bank, past)

	b.leave()
	running = false
	if err := bank.stop(); err != nil {
		t.Fatal(err)
	}
	for i, balance := range past {
		out, err := exec.CommandContext(t.Context(), program, "lookup", "alice", "--at-seq", strconv.Itoa(i+1), "--journal", journal).CombinedOutput()
		if err != nil {
			t.Fatalf("lookup: %v: %s", err, out)
		}
		if printed := row(string(out), "balance"); printed != balance+" USD" {
			t.Errorf("after event %d the sliders show %q, and lookup prints %q", i+1, balance, printed)
		}
	}
}

func balanceIs(id, balance string) string {
	return fmt.Sprintf(`document.querySelector('tr[data-account=%q]')?.dataset.balance === %q`, id, balance)
}

// sums returns the sums of both currencies. Both must equal the cash that was paid in.
func (b *browser) sums() string {
	b.tb.Helper()
	b.wait(`[...document.querySelectorAll(".book[data-sum]")].every((e) => e.dataset.balanced === "true")`)
	return eval[string](b, `[...document.querySelectorAll(".book[data-sum]")].map((e) => e.dataset.sum + " " + e.dataset.currency).join(", ")`)
}

// slide moves the slider of an account to each event and returns the balances.
func (b *browser) slide() (balances []string) {
	b.tb.Helper()
	for i := range eval[int](b, `+document.getElementById("account").dataset.last`) {
		n := i + 1
		b.run(set("#asof", n))
		b.wait(fmt.Sprintf(`document.getElementById("account").dataset.at === "%d"`, n))
		balances = append(balances, eval[string](b, `document.getElementById("account").dataset.balance`))
	}
	if len(balances) < 3 {
		b.tb.Errorf("the slider has the balances %v, want at least 3", balances)
	}
	return balances
}

// row returns the value of a row that a command has printed.
func row(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
