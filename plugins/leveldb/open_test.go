// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	engine "github.com/syndtr/goleveldb/leveldb"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// wantOpenError checks that a directory can't be opened for the given reason, and that the error
// names the directory.
func wantOpenError(t *testing.T, dir string, cfg leveldb.Config, want error) {
	t.Helper()
	db, err := leveldb.Open(dir, cfg.WithLogSize(testLog))
	if err == nil {
		_ = db.Close()
	}
	if !errors.Is(err, want) || !strings.Contains(err.Error(), filepath.Base(dir)) {
		t.Errorf("open %q: %v, want %v", dir, err, want)
	}
}

// tree returns the contents of the files of a database, but not its log of messages.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == "LOG" || path == "LOCK" {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const holdDir = "REFOLD_TEST_HOLD_DIR"

// hold holds a directory open for TestInUse, in a separate process.
func hold(dir string) {
	db, err := leveldb.Open(dir, leveldb.Config{}.WithLogSize(testLog))
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("open\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the other end is closed
	_ = db.Close()
	os.Exit(0)
}

const crashDir = "REFOLD_TEST_CRASH_DIR"

// crash appends events to a directory until it is killed, and prints a line after each successful
// call. It runs in a separate process of TestKilled.
func crash(dir string) {
	db, err := leveldb.Open(dir, leveldb.Config{}.WithLogSize(testLog))
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	highest, err := db.TestJournal().HighestSequenceNr(context.Background(), "a")
	for n := highest; err == nil; n++ {
		if errs := db.TestJournal().Append(context.Background(), []journal.Write{eventWrite("a", n, 1)}); errs != nil {
			err = errs[0]
			break
		}
		_, _ = fmt.Fprintln(os.Stdout, n+1)
	}
	_, _ = os.Stdout.WriteString(err.Error() + "\n")
	os.Exit(1)
}

// TestDirectoryMode checks that other users have no access to the directories that Open creates.
func TestDirectoryMode(t *testing.T) {
	t.Parallel()
	above := filepath.Join(t.TempDir(), "new")
	db, err := leveldb.Open(filepath.Join(above, "db"), leveldb.Config{}.WithLogSize(testLog))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{above, filepath.Join(above, "db")} {
		if info, err := os.Stat(dir); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, error %v; want 0700", dir, info.Mode(), err)
		}
	}
}

// TestKilled kills a process that writes, several times.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	last := 0
	for round := range 5 {
		other := exec.Command(os.Args[0])
		other.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 20 + 13*round {
			if !lines.Scan() {
				break
			}
			n, err := strconv.Atoi(lines.Text())
			if err != nil || n != last+1 {
				t.Fatalf("after the line %d the process printed %q, want the next number", last, lines.Text())
			}
			last = n
		}
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // its output before it was killed
			n, err := strconv.Atoi(lines.Text())
			if err != nil || n != last+1 {
				t.Fatalf("after the line %d the process printed %q, want the next number", last, lines.Text())
			}
			last = n
		}
		_ = other.Wait() // it was killed
		db := mustOpen(t, dir, leveldb.Config{})
		got := numbersOf(t, db.TestJournal())
		if len(got) != last && len(got) != last+1 {
			t.Errorf("found %d events, %d were acknowledged", len(got), last)
		}
		last = len(got)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	wantOpenError(t, dir, leveldb.Config{}, leveldb.ErrInUse)
	wantOpenError(t, dir, leveldb.Config{ReadOnly: true}, leveldb.ErrInUse)
	mustAppend(t, db.TestJournal(), write("a", 0, 1))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), holdDir+"="+dir)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err := out.Read(line); err != nil || string(line) != "open\n" {
		t.Fatalf("the other process printed %q, %v, want open", line, err)
	}
	wantOpenError(t, dir, leveldb.Config{}, leveldb.ErrInUse)
	if err := errors.Join(in.Close(), other.Wait()); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, leveldb.Config{})
	if got := numbers(t, db.TestJournal(), "a", 1, 9); len(got) != 1 {
		t.Errorf("the events are %v, want one", got)
	}
}

func TestDirectoryErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var pathError *os.PathError
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if db, err := leveldb.Open(dir, leveldb.Config{}); !errors.As(err, &pathError) || !strings.Contains(err.Error(), file) {
			t.Errorf("open %q: %v, %v, want an error that names the file", dir, db, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	wantOpenError(t, missing, leveldb.Config{ReadOnly: true}, os.ErrNotExist)
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading created a directory: %v, want ErrNotExist", err)
	}
	wantOpenError(t, t.TempDir(), leveldb.Config{ReadOnly: true}, os.ErrNotExist)
	mustOpen(t, filepath.Join(t.TempDir(), "several", "levels", "deep"), leveldb.Config{})
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	_, err := leveldb.Open(dir, leveldb.Config{CachedIDs: -1, MaxSnapshotSize: 2 << 30})
	if err == nil || !strings.Contains(err.Error(), "CachedIDs") || !strings.Contains(err.Error(), "MaxSnapshotSize") {
		t.Errorf("Open: %v, want an error that names CachedIDs and MaxSnapshotSize", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was created: %v, want ErrNotExist", err)
	}
}

func TestForeignDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := engine.OpenFile(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Put([]byte("key"), []byte("value"), nil), db.Close()); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	wantOpenError(t, dir, leveldb.Config{}, leveldb.ErrForeign)
	wantOpenError(t, dir, leveldb.Config{ReadOnly: true}, leveldb.ErrForeign)
	if after := tree(t, dir); !maps.Equal(before, after) {
		t.Errorf("Open changed the files of the directory from %v to %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
}

func TestNewerVersion(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{
		"refold.leveldb/3":  journal.ErrNewerVersion,
		"refold.leveldb/99": journal.ErrNewerVersion,
		"refold.leveldb/0":  leveldb.ErrForeign,
		"refold.leveldb/":   leveldb.ErrForeign,
		"refold.leveldb":    leveldb.ErrForeign,
	} {
		dir := t.TempDir()
		if err := leveldb.SetOrder(dir, name); err != nil {
			t.Fatal(err)
		}
		before := tree(t, dir)
		wantOpenError(t, dir, leveldb.Config{}, want)
		if after := tree(t, dir); !maps.Equal(before, after) {
			t.Errorf("Open changed the files of %s", name)
		}
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	mustAppend(t, db.TestJournal(), write("a", 0, 3))
	if err := db.TestSnapshots().Save(t.Context(), snapshotOf("a", 2)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	one, two := mustOpen(t, dir, leveldb.Config{ReadOnly: true}), mustOpen(t, dir, leveldb.Config{ReadOnly: true})
	wantOpenError(t, dir, leveldb.Config{}, leveldb.ErrInUse)
	for _, db := range []*leveldb.DB{one, two} {
		j := db.TestJournal()
		if got := numbers(t, j, "a", 1, 9); len(got) != 3 {
			t.Errorf("the events are %v, want 3", got)
		}
		if _, err := db.TestSnapshots().Load(t.Context(), "a", snapshot.Latest()); err != nil {
			t.Error(err)
		}
		errs := j.Append(t.Context(), []journal.Write{write("a", 3, 1), write("b", 0, 1)})
		if len(errs) != 2 || !errors.Is(errs[0], leveldb.ErrReadOnly) || !journal.NotStored(errs[1]) {
			t.Errorf("append: %v, want ErrReadOnly and a write that is not stored", errs)
		}
		for subject, err := range map[string]error{
			"delete":          j.DeleteTo(t.Context(), "a", 1),
			"save":            db.TestSnapshots().Save(t.Context(), snapshotOf("a", 3)),
			"delete snapshot": db.TestSnapshots().Delete(t.Context(), "a", snapshot.Criteria{All: true}),
			"compact":         db.Compact(t.Context()),
		} {
			if !errors.Is(err, leveldb.ErrReadOnly) {
				t.Errorf("%s: %v, want ErrReadOnly", subject, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := tree(t, dir); !maps.Equal(before, after) {
		t.Error("reading changed the files")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	j, s := db.TestJournal(), db.TestSnapshots()
	if j != db.TestJournal() || s != db.TestSnapshots() {
		t.Error("Journal or Snapshots returned another handle")
	}
	mustAppend(t, j, write("a", 0, 1))
	for range 2 {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	if errs := j.Append(t.Context(), []journal.Write{write("a", 1, 1)}); len(errs) != 1 || !errors.Is(errs[0], journal.ErrClosed) || !journal.NotStored(errs[0]) {
		t.Errorf("append: %v, want ErrClosed", errs)
	}
	if err := s.Save(t.Context(), snapshotOf("a", 1)); err != nil {
		t.Errorf("the store was closed with the journal: %v", err)
	}
	wantOpenError(t, dir, leveldb.Config{}, leveldb.ErrInUse)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Save(t.Context(), snapshotOf("a", 1)); !errors.Is(err, snapshot.ErrClosed) {
		t.Errorf("save: %v, want ErrClosed", err)
	}
	again := mustOpen(t, dir, leveldb.Config{}) // the last handle released the directory
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := again.TestJournal().HighestSequenceNr(t.Context(), "a"); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("highest: %v, want ErrClosed", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A directory in which only CURRENT is left has lost its database. It must not open as a new one.
func TestOnlyCurrentIsLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := mustOpen(t, dir, leveldb.Config{})
	mustAppend(t, db.TestJournal(), write("a", 0, 3))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "CURRENT" {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, readOnly := range []bool{false, true} {
		wantOpenError(t, dir, leveldb.Config{ReadOnly: readOnly}, journal.ErrCorrupt)
	}
}

// An empty name is not the current directory.
func TestOpenWithoutDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if _, err := leveldb.Open("", leveldb.Config{}); !errors.Is(err, journal.ErrInvalid) {
		t.Errorf("open: %v, want ErrInvalid", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the current directory has %d entries, %v, want 0", len(entries), err)
	}
}
