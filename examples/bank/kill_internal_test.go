// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/refold-io/refold/examples/bank/requests"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
)

// A bank that is killed repeatedly while it executes a file reaches the same result as an
// undisturbed bank. Each line that the bank acknowledged before a kill is in its journal after the
// kill.
func TestKilledBankLosesNothing(t *testing.T) {
	t.Parallel()
	k := killing{accounts: 20, commands: 600, kills: 3, inRecovery: 1, inTransfer: 1, seed: 7}
	if effort.Soak() {
		k = killing{accounts: 1000, commands: 100_000, kills: 20, inRecovery: 4, inTransfer: 4, seed: 7}
	}
	k.run(t)
}

// All lines change the same account.
func TestKilledBankWithOneAccount(t *testing.T) {
	t.Parallel()
	k := killing{accounts: 1, commands: 400, kills: 2, seed: 11}
	if effort.Soak() {
		k = killing{accounts: 1, commands: 20_000, kills: 6, seed: 11}
	}
	k.run(t)
}

// With one worker that waits for each transfer, the events are the same, in the same order.
func TestKilledBankWritesSameEvents(t *testing.T) {
	t.Parallel()
	k := killing{accounts: 20, commands: 200, kills: 2, seed: 13, flags: []string{"--workers", "1", "--settle"}}
	if effort.Soak() {
		k = killing{accounts: 100, commands: 5_000, kills: 8, seed: 13, flags: k.flags}
	}
	k.sameEvents = true
	k.run(t)
}

// killing is a bank program that is killed at random moments.
type killing struct {
	accounts, commands int
	// kills is the number of kills. At least inRecovery of them hit an account in recovery, and at
	// least inTransfer of them hit a transfer between debit and credit.
	kills, inRecovery, inTransfer int
	seed                          uint64
	flags                         []string
	sameEvents                    bool

	program, dir, file, hash string
	acknowledged             map[uint64]string // the outcome of each line
}

func (k *killing) run(t *testing.T) {
	t.Helper()
	want := k.prepare(t)
	killed := "leveldb:" + filepath.Join(k.dir, "killed")
	k.killAll(t, killed)
	if _, finished := k.apply(t, killed, func(int, logRecord) bool { return false }); !finished {
		t.Fatal("the run after the last kill did not finish")
	}
	k.compare(t, killed, want)
}

// prepare generates the file, and returns the result of an undisturbed run.
func (k *killing) prepare(t *testing.T) ledger {
	t.Helper()
	k.dir = t.TempDir()
	var err error
	if k.program, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	return k.generate(t)
}

// generate creates the file, and returns the ledger of an undisturbed run.
func (k *killing) generate(t *testing.T) ledger {
	t.Helper()
	k.acknowledged = make(map[uint64]string)
	k.file = filepath.Join(k.dir, "commands.csv")
	k.must(t, "generate", "--confluent", "--accounts", strconv.Itoa(k.accounts), "--commands", strconv.Itoa(k.commands),
		"--seed", strconv.FormatUint(k.seed, 10), "-o", k.file)
	k.hash = hashOf(t, k.file)

	calm := "leveldb:" + filepath.Join(k.dir, "calm")
	k.must(t, append([]string{"apply", k.file, "--journal", calm, "--rejects", filepath.Join(k.dir, "calm.csv")}, k.flags...)...)
	return readLedger(t, calm)
}

// compare requires that each line was acknowledged and executed once, and that the result equals
// that of an undisturbed bank.
func (k *killing) compare(t *testing.T, address string, want ledger) {
	t.Helper()
	k.must(t, "audit", "--journal", address)
	got := readLedger(t, address)

	if len(k.acknowledged) != k.commands {
		t.Errorf("%d lines were acknowledged, want all %d lines of the file", len(k.acknowledged), k.commands)
	}
	for request, n := range got.requests {
		if n != 1 {
			t.Errorf("request %s was executed %d times, want once", request, n)
		}
	}
	if !maps.Equal(got.requests, want.requests) {
		t.Errorf("%d lines were executed, %d in the undisturbed run", len(got.requests), len(want.requests))
	}
	if !maps.Equal(got.balances, want.balances) {
		t.Errorf("the balances after the kills are not equal to those of an undisturbed run")
	}
	if k.sameEvents {
		for id := range want.events {
			if !slices.Equal(got.events[id], want.events[id]) {
				t.Errorf("the events of %s are %v, want %v", id, got.events[id], want.events[id])
			}
		}
	}
}

// killAll kills runs of the bank at random moments. Kills in a recovery follow directly after
// another kill, because accounts recover in the next run.
func (k *killing) killAll(t *testing.T, address string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(k.seed, 0))
	moments := make([]int, k.kills-k.inRecovery)
	for i := range moments {
		moments[i] = k.commands*2/100 + rng.IntN(k.commands*96/100)
	}
	slices.Sort(moments)
	inRecovery, inTransfer := 0, 0
	for i, moment := range moments {
		hit, finished := k.apply(t, address, func(acknowledged int, r logRecord) bool {
			// The first inTransfer kills wait for a transfer that is in flight.
			return acknowledged >= moment && (r.Event == "transfer_debited" || i >= k.inTransfer)
		})
		if finished {
			t.Fatalf("kill %d: the run finished before the kill at %d of %d lines", i+1, moment, k.commands)
		}
		if hit.inTransfer {
			inTransfer++
		}
		k.check(t, address)
		for tries := 0; inRecovery < k.inRecovery && inRecovery*len(moments) <= i*k.inRecovery && tries < 50; tries++ {
			after := 1 + rng.IntN(min(20, k.accounts))
			begun := 0
			hit, finished := k.apply(t, address, func(_ int, r logRecord) bool {
				if r.Event == "recovery_started" {
					begun++
				}
				return begun >= after
			})
			if finished {
				t.Fatal("the run finished before a kill in a recovery")
			}
			k.check(t, address)
			if hit.inRecovery {
				inRecovery++
				break
			}
		}
	}
	if inRecovery < k.inRecovery || inTransfer < k.inTransfer {
		t.Errorf("%d kills hit a recovery, %d a transfer; wanted %d and %d", inRecovery, inTransfer, k.inRecovery, k.inTransfer)
	}
	t.Logf("%d kills at an acknowledged line, %d in a recovery, %d between debit and credit", len(moments), inRecovery, inTransfer)
}

// hit is the moment of a kill.
type hit struct{ inRecovery, inTransfer bool }

// apply runs the bank and kills it at the first record of its log for which at returns true. It
// returns the moment of the kill, or finished if the program ended before a kill.
//
// The log is a pipe with a small buffer, so the program cannot run ahead of the test.
func (k *killing) apply(t *testing.T, address string, at func(acknowledged int, r logRecord) bool) (h hit, finished bool) {
	t.Helper()
	pipe := filepath.Join(k.dir, "log")
	if err := errors.Join(os.RemoveAll(pipe), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	args := append([]string{program, "apply", k.file, "--journal", address, "--log", pipe, "--rejects", filepath.Join(k.dir, "rejects.csv")}, k.flags...)
	cmd := exec.Command(k.program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if _, err := cmd.StdinPipe(); err != nil { // the pipe stays open until the program ends: see beTheBank
		t.Fatal(err)
	}
	// The test opens the pipe for reading and writing, so that neither the test nor the program
	// waits for the other one to open the pipe.
	both, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const setPipeSize = 1031 // F_SETPIPE_SZ
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, both.Fd(), setPipeSize, 4096); errno != 0 {
		t.Fatalf("shrink the pipe: %v", errno)
	}
	log, err := os.OpenFile(pipe, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		waited := cmd.Wait()
		_ = both.Close() // now the pipe has no writer, and reading it ends
		ended <- waited
	}()
	recovering, flying := make(map[string]int), 0
	killed := false
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var r logRecord
		if err = json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("the log has an invalid record: %v: %s", err, lines.Bytes())
		}
		switch r.Event {
		case "line":
			if r.Outcome != "repeated" && r.Outcome != "passed" || k.acknowledged[r.Line] == "" {
				k.acknowledged[r.Line] = r.Outcome
			}
		case "recovery_started":
			recovering[r.Account]++
		case "recovery_ended":
			if recovering[r.Account]--; recovering[r.Account] == 0 {
				delete(recovering, r.Account)
			}
		case "transfer_debited":
			flying++
		case "transfer_credited":
			flying--
		}
		if !killed && at(len(k.acknowledged), r) {
			killed = true
			if err = cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err = lines.Err(); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	if !killed {
		if err != nil {
			t.Fatalf("apply: %v\n%s", err, output.String())
		}
		return hit{}, true
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("the killed program ended with %v, want an ExitError\n%s", err, output.String())
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the program ended with %v before the test killed it\n%s", err, output.String())
	}
	return hit{inRecovery: len(recovering) > 0, inTransfer: flying > 0}, false
}

// check requires that each line that was acknowledged as done is in the journal, once.
func (k *killing) check(t *testing.T, address string) {
	t.Helper()
	found := readLedger(t, address)
	for line, outcome := range k.acknowledged {
		if n := found.requests[requests.FileLine(k.hash, line)]; outcome == "done" && n != 1 {
			t.Fatalf("line %d was acknowledged before the kill, and is in the journal %d times after the kill, want once", line, n)
		}
	}
}

// ledger summarizes a journal.
type ledger struct {
	requests map[string]int      // number of executions by request ID
	balances map[string]string   // balances by account
	events   map[string][]string // events by account, without the parts that differ between runs
}

// readLedger reads a journal without the code of Account.
func readLedger(t *testing.T, address string) ledger {
	t.Helper()
	s, err := openStore(t.Context(), address, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	b := ledger{requests: make(map[string]int), balances: make(map[string]string), events: make(map[string][]string)}
	lister, _ := journal.As[journal.IDLister](s.Journal())
	typ := AccountType(nil)
	for id, err := range lister.PersistenceIDs(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if kind, _ := journal.SplitID(id); kind != AccountTypeName {
			continue
		}
		account := &Account{}
		for e, err := range s.Journal().Replay(t.Context(), id, 1, journal.MaxSequenceNr) {
			if err != nil {
				t.Fatal(err)
			}
			if e.IsFence() {
				continue
			}
			event, err := typ.Events.Decode(e.Manifest, e.Payload)
			if err != nil {
				t.Fatal(err)
			}
			happened, _ := event.(Event)
			account.apply(happened)
			b.note(id, e.Manifest, event)
		}
		b.balances[id] = account.Balance.String()
	}
	return b
}

// note records an event.
func (b *ledger) note(id, name string, event any) {
	data, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		panic(err)
	}
	if r, ok := fields["Request"].(string); ok && r != "" {
		b.requests[r]++
	}
	for _, differs := range []string{"At", "Nr", "Floor", "AsOf"} {
		delete(fields, differs)
	}
	b.events[id] = append(b.events[id], fmt.Sprint(name, fields))
}

// must runs the program in this process and requires that it succeeds.
func (k *killing) must(t *testing.T, args ...string) {
	t.Helper()
	var out bytes.Buffer
	if code := run(context.WithoutCancel(t.Context()), args, strings.NewReader(""), &out, &out); code != exitOK {
		t.Fatalf("bank %v: exit code %d, want %d\n%s", args, code, exitOK, out.String())
	}
}

func hashOf(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	hash, err := requests.Hash(io.Reader(file))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
