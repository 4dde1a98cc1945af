// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// outcome is the result of a run of a program.
type outcome struct {
	status      int
	stdout, err string
}

// start runs a program with arguments. The test sets only the fields of the program that it needs.
func start(t *testing.T, p operator.Program, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	p.Stdout, p.Stderr = &out, &errs
	p.Databases = []operator.Database{pgjournal.Database()}
	status := p.Run(t.Context(), args)
	return outcome{status, out.String(), errs.String()}
}

// want checks the exit status and the standard error.
func (o outcome) want(t *testing.T, status int, err string) {
	t.Helper()
	if o.status != status || !strings.Contains(o.err, err) || err == "" && o.err != "" {
		t.Errorf("exit status %d, standard error %q; want %d, %q", o.status, o.err, status, err)
	}
}

func TestMissingDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{{"events"}, {"snapshots"}, {"verify"}, {"rebuild", "account|1"}} {
		p := operator.Program{Entities: []operator.Linked{operator.Entity(accountType())}}
		start(t, p, append(args, "--journal", "leveldb:"+dir)...).want(t, operator.ExitFailed, "the directory does not exist")
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%v: Stat of the directory returned %v, want ErrNotExist", args, err)
		}
	}
}

func TestDirectoryWithoutJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := start(t, operator.Program{Journal: "leveldb:" + dir}, "verify")
	o.want(t, operator.ExitFailed, "the directory contains no LevelDB journal")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the directory contains %v, error %v, want no files", left, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, operator.Program{Journal: "leveldb:" + file}, "verify").want(t, operator.ExitFailed, "not a directory")
}

func TestJournalInUse(t *testing.T) {
	t.Parallel()
	f := bank(t) // the journal stays open for writing
	start(t, operator.Program{Journal: "leveldb:" + f.dir}, "verify").want(t, operator.ExitFailed, leveldb.ErrInUse.Error())
}

// The commands do not change the files of the journal.
func TestCommandsChangeNoFiles(t *testing.T) {
	t.Parallel()
	f := bank(t)
	f.close()
	files := func() map[string]string {
		all := map[string]string{}
		entries, err := os.ReadDir(f.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(f.dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name()] = string(b)
		}
		return all
	}
	before := files()
	p := operator.Program{Journal: "leveldb:" + f.dir, Entities: []operator.Linked{operator.Entity(accountType())}}
	for _, args := range [][]string{{"events"}, {"events", "account|1"}, {"snapshots"}, {"verify"}, {"rebuild", "account|1"}} {
		if o := start(t, p, args...); o.status != operator.ExitOK {
			t.Errorf("%v: %+v, want exit status 0", args, o)
		}
	}
	if after := files(); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the files of the journal are %v after the commands, want %v", after, before)
	}
}

// Damage that a command detects while it opens the journal has the exit status ExitProblems.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	f := bank(t)
	f.close()
	logs, err := filepath.Glob(filepath.Join(f.dir, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0xff
	if err := os.WriteFile(logs[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, operator.Program{Journal: "leveldb:" + f.dir}, "verify").want(t, operator.ExitProblems, "corrupt")
}

func TestJournalWithoutLister(t *testing.T) {
	t.Parallel()
	p := operator.Program{Open: func(context.Context, string) (*operator.Source, error) {
		return &operator.Source{Journal: struct{ journal.Journal }{}, Close: func() error { return nil }}, nil
	}}
	for _, command := range []string{"events", "verify"} {
		start(t, p, command).want(t, operator.ExitFailed, "cannot list its persistence IDs")
	}
	start(t, p, "snapshots").want(t, operator.ExitFailed, "has no snapshot store")
}

func TestSourceClosed(t *testing.T) {
	t.Parallel()
	closed := 0
	p := operator.Program{Open: func(context.Context, string) (*operator.Source, error) {
		return &operator.Source{
			Journal: &fakeJournal{records: map[string][]journal.Event{"a|1": good(1)}},
			Close:   func() error { closed++; return errDisk },
		}, nil
	}}
	start(t, p, "events").want(t, operator.ExitFailed, errDisk.Error())
	if closed != 1 {
		t.Errorf("the source was closed %d times, want 1", closed)
	}
}

// After an error, verify reports the checked part as incomplete.
func TestIncompleteVerify(t *testing.T) {
	t.Parallel()
	p := operator.Program{Open: func(context.Context, string) (*operator.Source, error) {
		return &operator.Source{
			Journal: &fakeJournal{records: map[string][]journal.Event{"a|1": good(2)}, listErr: errDisk},
			Close:   func() error { return nil },
		}, nil
	}}
	o := start(t, p, "verify")
	o.want(t, operator.ExitFailed, errDisk.Error())
	if want := "incomplete: 1 persistence ID, 2 records (0 fences), 0 snapshots: 0 problems\n"; o.stdout != want {
		t.Errorf("printed %q, want %q", o.stdout, want)
	}
	if o = start(t, p, "verify", "--json"); !strings.Contains(o.stdout, `"complete":false`) {
		t.Errorf("verify --json printed %q, want \"complete\":false", o.stdout)
	}
}

// A journal directory without the file CURRENT is damaged. It does not count as empty.
func TestDirectoryWithoutCurrent(t *testing.T) {
	t.Parallel()
	f := bank(t)
	f.close()
	current := filepath.Join(f.dir, "CURRENT")
	if err := os.Remove(current); err != nil {
		t.Fatal(err)
	}
	start(t, operator.Program{Journal: "leveldb:" + f.dir}, "verify").want(t, operator.ExitProblems, "journal: corrupt: "+current+": the file is missing")
	start(t, operator.Program{}, "copy", "leveldb:"+bankDir(t), "leveldb:"+f.dir).want(t, operator.ExitProblems, "target: journal: corrupt: "+current)
}

// bankDir returns the directory of a closed journal.
func bankDir(t *testing.T) string {
	t.Helper()
	f := bank(t)
	f.close()
	return f.dir
}

// hello is an additional command.
type hello struct {
	Name string `arg:""`
	Loud bool
}

func (h *hello) Run(ctx context.Context, env *operator.Env) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case h.Name == "fail":
		return errDisk
	case h.Loud:
		_, _ = fmt.Fprintln(env.Stdout, "HELLO", h.Name, "from", env.Name, env.Terminal)
		return fmt.Errorf("too loud: %w", operator.ErrProblems)
	}
	_, err := fmt.Fprintln(env.Stdout, "hello", h.Name)
	return err
}

func TestAdditionalCommands(t *testing.T) {
	t.Parallel()
	p := operator.Program{Name: "bank refold", Commands: []operator.Command{{Name: "hello", Help: "Greet.", Grammar: &hello{}}}}
	o := start(t, p, "hello", "you")
	o.want(t, operator.ExitOK, "")
	if o.stdout != "hello you\n" {
		t.Errorf("hello printed %q, want \"hello you\"", o.stdout)
	}
	p.Commands[0].Grammar = &hello{}
	o = start(t, p, "hello", "you", "--loud")
	o.want(t, operator.ExitProblems, "")
	if o.stdout != "HELLO you from bank refold false\n" {
		t.Errorf("hello --loud printed %q, want the loud text with the name of the program", o.stdout)
	}
	p.Commands[0].Grammar = &hello{}
	start(t, p, "hello", "fail").want(t, operator.ExitFailed, "bank refold: disk on fire\n")
	p.Commands[0].Grammar = "not a struct"
	start(t, p, "hello", "you").want(t, operator.ExitFailed, "must be a pointer to a struct")
	p.Commands[0].Grammar = &struct {
		Bad string `default:"{"`
		Two string `name:"bad"`
	}{}
	start(t, p, "hello", "you").want(t, operator.ExitFailed, "invalid command grammar")
}

func TestPrintableErrors(t *testing.T) {
	t.Parallel()
	f := bank(t)
	f.close()
	o := start(t, operator.Program{Journal: "leveldb:" + f.dir}, "events", "\x1b[2J\u202e")
	o.want(t, operator.ExitFailed, "no persistence ID")
	if strings.ContainsAny(o.err, "\x1b\u202e") {
		t.Errorf("standard error %q contains control characters", o.err)
	}
}

func TestProgressOnTerminal(t *testing.T) {
	t.Parallel()
	f := bank(t)
	f.close()
	var out, errs bytes.Buffer
	p := operator.Program{Journal: "leveldb:" + f.dir, Stdout: &out, Stderr: &errs}
	if status := operator.RunOnTerminal(t.Context(), p, []string{"verify"}); status != operator.ExitOK {
		t.Errorf("verify: exit status %d, %s; want %d", status, errs.String(), operator.ExitOK)
	}
	if !strings.HasPrefix(out.String(), "4 persistence IDs") {
		t.Errorf("verify printed %q, want 4 persistence IDs", out.String())
	}
}

func TestListLongerThanBlock(t *testing.T) {
	t.Parallel()
	p := operator.Program{Open: func(context.Context, string) (*operator.Source, error) {
		return &operator.Source{
			Journal: &fakeJournal{records: map[string][]journal.Event{"a|1": good(2500)}},
			Close:   func() error { return nil },
		}, nil
	}}
	for limit, want := range map[string]int{"0": 2501, "1200": 1201} {
		o := start(t, p, "events", "a|1", "--limit", limit)
		if n := strings.Count(o.stdout, "\n"); n != want {
			t.Errorf("--limit %s prints %d lines, want %d", limit, n, want)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if status := operator.Run(t.Context(), []string{"--help"}, &out, &errs); status != operator.ExitOK || errs.Len() > 0 {
		t.Errorf("--help: exit status %d, standard error %q; want %d and nothing", status, errs.String(), operator.ExitOK)
	}
	if !strings.Contains(out.String(), "Exit status: 0") {
		t.Errorf("the help lacks the text \"Exit status: 0\":\n%s", out.String())
	}
}

// The variable REFOLD_JOURNAL replaces DefaultJournal, but neither the default of a program nor the flag.
func TestJournalFromVariable(t *testing.T) {
	f := bank(t)
	f.close()
	t.Setenv("REFOLD_JOURNAL", "leveldb:"+f.dir)
	if o := start(t, operator.Program{}, "events"); o.status != operator.ExitOK || !strings.Contains(o.stdout, "account|1") {
		t.Errorf("events: status %d, %s%s; want the entities of the journal in the variable", o.status, o.stdout, o.err)
	}
	start(t, operator.Program{Journal: "leveldb:none-1"}, "events").want(t, operator.ExitFailed, "none-1")
	start(t, operator.Program{}, "events", "--journal", "leveldb:none-2").want(t, operator.ExitFailed, "none-2")
	start(t, operator.Program{}, "migrate").want(t, operator.ExitFailed, "it is not on PostgreSQL")
	if o := start(t, operator.Program{}, "events", "--help"); !strings.Contains(strings.Join(strings.Fields(o.stdout), " "), "Defaults to REFOLD_JOURNAL, or leveldb:./bank-data without it.") {
		t.Errorf("events --help does not name the variable:\n%s", o.stdout)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	o := start(t, operator.Program{Name: "bank"}, "--version")
	if o.status != operator.ExitOK || !strings.HasPrefix(o.stdout, "bank ") || !strings.HasSuffix(o.stdout, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n") {
		t.Errorf("--version: status %d, %q", o.status, o.stdout)
	}
	settings := []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}}
	commit := []debug.BuildSetting{{Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"}}
	refold := debug.Module{Path: "github.com/refold-io/refold", Version: "v0.3.0"}
	for _, c := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{GoVersion: "go1.26.0", Main: refold, Settings: settings}, "bank v0.3.0\ngo1.26.0 linux/arm64"},
		{debug.BuildInfo{GoVersion: "go1.26.0", Main: refold, Settings: append(commit, settings...)}, "bank v0.3.0\ncommit c0ffee with changes, 2026-01-02T03:04:05Z\ngo1.26.0 linux/arm64"},
		{debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Path: "example.com/bank"}, Deps: []*debug.Module{&refold}, Settings: settings}, "bank (unknown version)\nrefold v0.3.0\ngo1.26.0 linux/arm64"},
	} {
		if got := operator.VersionText("bank", &c.info); got != c.want {
			t.Errorf("the version is %q, want %q", got, c.want)
		}
	}
}

// A device that is no terminal, such as /dev/null, shows no progress.
func TestTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close() //nolint:errcheck // nothing is written
	if operator.IsTerminal(null) || operator.IsTerminal(new(bytes.Buffer)) {
		t.Error("the null device or a buffer counts as a terminal")
	}
}
