// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/store"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "Usage: bank <command>"},
		{"dance", exitUsage, "unexpected argument dance"},
		{"audit --dance", exitUsage, "unknown flag --dance"},
		{"apply " + missing, exitUsage, "missing"},
		{"lookup alice --at-time noon", exitUsage, `"noon" is neither a time`},
		{"lookup alice --at-seq -1", exitUsage, "at-seq"},
		{"lookup alice --at-seq 0", exitUsage, "at-seq"},
		{"generate --accounts 5 --commands 4", exitUsage, "--commands at least as many"},
		{"generate --accounts 5", exitUsage, "--commands"},
		{"audit --journal mongo:", exitFailed, `journal "mongo:": expected inmem:, leveldb:DIR, postgres:`},
		{"audit --journal leveldb:", exitFailed, `journal "leveldb:"`},
		{"audit --journal leveldb:" + missing, exitFailed, "contains no bank"},
		{"lookup alice --journal inmem:", exitFailed, "journal inmem: is empty"},
		{"statement alice --journal inmem:", exitFailed, "journal inmem: is empty"},
		{"lookup alice --journal inmem: --rates " + missing, exitFailed, "rates: stat"},
		{"apply cli_test.go --journal inmem: --workers 0", exitUsage, "--workers 0"},
		{"--help", exitOK, ""},
		{"help", exitOK, ""},
		{"help apply", exitOK, ""},
		{"help dance", exitUsage, "unexpected argument dance"},
		{"audit --journal postgres:x", exitFailed, "expected postgres://USER@HOST/DATABASE"},
		{"audit --journal postgres://ada:sesame@127.0.0.1:1/x", exitFailed, "open the journal: "},
		{"audit --journal postgre://ada:sesame@h/x", exitFailed, `journal "postgre:": expected`},
		{"audit postgres://ada:sesame@h/x", exitUsage, "unexpected argument postgres://ada:xxxxx@h/x"},
		{"--journal postgres://ada:sesame@h/x refold verify --help", exitOK, ""},
		{"refold", exitUsage, "Usage: bank refold <command>"},
		{"refold help", exitOK, ""},
		{"refold rebuild --help", exitOK, ""},
		{"refold dance", exitUsage, "bank refold: unexpected argument dance"},
		{"refold verify --journal leveldb:" + missing, exitUsage, "the directory does not exist"},
		{"apply --help", exitOK, ""},
		{"serve --nodes 3 --join a", exitUsage, "exclude each other"},
		{"serve --nodes 21 --journal inmem:", exitUsage, "--nodes 21: must be 1 to 20"},
		{"serve --nodes=-1", exitUsage, "--nodes -1"},
		{"serve --name a", exitUsage, "--name needs --join"},
		{"serve --state ddata", exitUsage, "--state needs --nodes or --join"},
		{"serve --cluster shop", exitUsage, "--cluster needs --nodes or --join"},
		{"serve --standbys 1", exitUsage, "--standbys needs --nodes or --join"},
		{"serve --nodes 3 --standbys 10", exitUsage, "--standbys 10: must be 0 to 9"},
		{"serve --stable-after 9s", exitUsage, "--stable-after needs --nodes or --join"},
		{"serve --nodes 3 --state disk", exitUsage, `--state "disk": must be journal or ddata`},
		{"serve --drain-delay 5s", exitUsage, "--drain-delay needs --join"},
		{"serve --nodes 3 --drain-delay 5s", exitUsage, "--drain-delay needs --join"},
		{"serve --join a --name a --drain-delay=-1s", exitUsage, "--drain-delay -1s: must not be negative"},
		{"probe http://127.0.0.1:1/ready", exitFailed, "bank: probe: "},
		{"serve --nodes 3 --stable-after 9ms", exitUsage, "at least 1s"},
		{"serve --nodes 3 --addr here:http --journal inmem:", exitFailed, "need a numeric port"},
		{"serve --join a", exitUsage, "--join needs --name"},
		{"serve --join a --name a", exitUsage, "--join needs --nats"},
		{"serve --join a --name a --nats nats://127.0.0.1:1", exitUsage, "--join cannot use --journal leveldb:"},
		{"serve --join a --name a --nats nats://127.0.0.1:1 --journal inmem:", exitUsage, "--join cannot use --journal inmem:"},
	} {
		r := call(t.Context(), "", strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.errout, c.want) {
			t.Errorf("bank %s: %+v, want exit code %d and %q", c.args, r, c.code, c.want)
		}
		if strings.Contains(r.out+r.errout, "sesame") {
			t.Errorf("bank %s prints the password: %+v", c.args, r)
		}
	}
	if r := call(t.Context(), "", "--help"); !strings.Contains(r.out, "Exit codes: 0 success") {
		t.Errorf("the help text lacks the exit codes:\n%s", r.out)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Errorf("a command that only reads created the journal %s", missing)
	}
}

// A branch that joins others uses the NATS servers from the environment. A cluster in one process
// ignores them.
func TestServersFromEnvironment(t *testing.T) {
	t.Parallel()
	env := func(name string) string { return map[string]string{"REFOLD_NATS": "nats://a:1,nats://b:1"}[name] }
	whole := clusterFlags{Nodes: 3}
	if err := whole.check("leveldb:x", env); err != nil || len(whole.NATS) != 0 || whole.members() != 3 {
		t.Errorf("--nodes 3: got %+v, error %v, want no NATS servers and 3 members", whole, err)
	}
	part := clusterFlags{Join: []string{"a", "b", "c"}, Name: "b"}
	if err := part.check("postgres:", env); err != nil || len(part.NATS) != 2 || part.members() != 2 {
		t.Errorf("--join: got %+v, error %v, want 2 NATS servers and 2 members", part, err)
	}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	first := must(t, exitOK, "generate", "--accounts", "5", "--commands", "20", "--seed", "3").out
	path := filepath.Join(t.TempDir(), "out.csv")
	must(t, exitOK, "generate", "--accounts", "5", "--commands", "20", "--seed", "3", "-o", path)
	if data, err := os.ReadFile(path); err != nil || string(data) != first || strings.Count(first, "\n") != 21 {
		t.Errorf("generate: error %v; the file has\n%s\nthe standard output has\n%s\nwant equal files of 21 lines", err, data, first)
	}
	must(t, exitFailed, "generate", "--accounts", "5", "--commands", "20", "-o", t.TempDir())
}

func TestJournalInUse(t *testing.T) {
	t.Parallel()
	name := "leveldb:" + filepath.Join(t.TempDir(), "data")
	s := newStore(t, name)
	r := must(t, exitFailed, "audit", "--journal", name)
	if !strings.Contains(r.errout, "in use") {
		t.Errorf("audit of a journal in use printed %s, want \"in use\"", r.errout)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	must(t, exitOK, "audit", "--journal", name)
}

func TestAuditFails(t *testing.T) {
	t.Parallel()
	name := "leveldb:" + filepath.Join(t.TempDir(), "data")
	must(t, exitOK, "apply", written(t, "1,open,alice,,USD,\n"), "--journal", name)
	s := newStore(t, name)
	b := startBank(t, s, testRates)
	manifest, payload, err := b.typ.Events.Encode(Deposited{cause(""), plain(usd("-5"))})
	if err != nil {
		t.Fatal(err)
	}
	if errs := s.Journal().Append(t.Context(), []journal.Write{{ID: "account|alice", Writer: "x", Expect: 1, Events: []journal.Event{
		{SequenceNr: 2, Time: noon, Manifest: manifest, Payload: payload},
	}}}); errs != nil {
		t.Fatal(errs)
	}
	stopBank(t, b)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := must(t, exitFailed, "audit", "--journal", name)
	if !strings.Contains(r.out, "VIOLATION balance") || !strings.Contains(r.errout, "the audit found 2 violations") {
		t.Errorf("audit of falsified books: %+v, want a violation of the balance and 2 violations in total", r)
	}
}

func TestRatesFromFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rates.json")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(testRates, "32.15", "40")), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = "open alice TWD\ndeposit alice 1 USD\n"
	if r := call(t.Context(), script, "shell", "--journal", "inmem:", "--rates", path); r.out != "balance 0.00 TWD\nbalance 40.00 TWD\n" {
		t.Errorf("shell with rates from a file: %+v, want the balance 40.00 TWD", r)
	}
	if r := call(t.Context(), script, "shell", "--journal", "inmem:", "--rates", path, "--max-rate-age", "1s"); !strings.Contains(r.out, "rate too old") {
		t.Errorf("shell with rates above the maximum age: %+v, want \"rate too old\"", r)
	}
	if r := call(t.Context(), script, "shell", "--journal", "inmem:"); r.out != "balance 0.00 TWD\nbalance 32.15 TWD\n" {
		t.Errorf("shell with built-in rates: %+v, want the balance 32.15 TWD", r)
	}
}

func TestUnwritableFiles(t *testing.T) {
	t.Parallel()
	file := written(t, "1,deposit,alice,1,USD,\n")
	r := must(t, exitFailed, "apply", file, "--journal", "inmem:", "--rejects", t.TempDir())
	if !strings.Contains(r.errout, "write the rejects") {
		t.Errorf("apply with unwritable rejects printed %s, want \"write the rejects\"", r.errout)
	}
	r = must(t, exitFailed, "apply", file, "--journal", "inmem:", "--log", t.TempDir())
	if !strings.Contains(r.errout, "open the log") {
		t.Errorf("apply with an unwritable log printed %s, want \"open the log\"", r.errout)
	}
	l, err := openLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.file.Close(); err != nil {
		t.Fatal(err)
	}
	l.write(logRecord{})
	if err := l.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("close of a closed log: %v, want ErrClosed", err)
	}
}

// full is a journal that rejects all writes.
type full struct{ journal.Journal }

var errFull = errors.New("disk full")

func (f full) Append(_ context.Context, writes []journal.Write) []error {
	errs := make([]error, len(writes))
	for i := range errs {
		errs[i] = &journal.RejectedError{ID: writes[i].ID, SequenceNr: writes[i].Expect + 1, Reason: errFull}
	}
	return errs
}

func TestVerbose(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	s := newStore(t, "inmem:")
	s = store.Of(full{s.Journal()}, s.Snapshots())
	b, err := openBank(s, parseRates(t, testRates), slog.New(slog.NewTextHandler(&logged, nil)), (*eventLog)(nil).observer())
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, b)
	if status, answer := c.send(t, "POST", "/accounts", `{"id": "alice", "currency": "USD"}`); status != 500 || !strings.Contains(answer, `"code":"refold/rejected"`) {
		t.Errorf("open with a full journal: status %d, %s, want 500 and refold/rejected", status, answer)
	}
	stopBank(t, b)
	if !strings.Contains(logged.String(), "disk full") {
		t.Errorf("the log lacks the error \"disk full\" of the journal:\n%s", logged.String())
	}
}
