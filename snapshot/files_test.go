// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

func TestFilesConformance(t *testing.T) {
	t.Parallel()
	open := func(tb testing.TB, dir string) snapshot.Store {
		tb.Helper()
		store, err := snapshot.OpenFiles(dir, snapshot.FilesConfig{})
		if err != nil {
			tb.Fatalf("OpenFiles: %v", err)
		}
		return store
	}
	snapshottest.Run(t, snapshottest.Config{
		Open: func(tb testing.TB) snapshot.Store {
			tb.Helper()
			return open(tb, tb.TempDir())
		},
		Reopen: func(tb testing.TB, store snapshot.Store) snapshot.Store {
			tb.Helper()
			return open(tb, store.(*snapshot.Files).Dir()) //nolint:errcheck // it is one
		},
		Damage: func(tb testing.TB, store snapshot.Store, m snapshot.Metadata) {
			tb.Helper()
			flipBit(tb, store.(*snapshot.Files).Path(m), -1) //nolint:errcheck // it is one
		},
		Local:      true,
		MaxPayload: 8 << 20,
	})
}

// flipBit damages a file at an offset, counted from the end if it is negative.
func flipBit(tb testing.TB, name string, offset int) {
	tb.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		tb.Fatalf("damage: %v", err)
	}
	data[(offset+len(data))%len(data)] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		tb.Fatalf("damage: %v", err)
	}
}

func openFiles(t *testing.T, dir string, c snapshot.FilesConfig) *snapshot.Files {
	t.Helper()
	store, err := snapshot.OpenFiles(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// fill saves the snapshots of "a" at the numbers from 1 to n.
func fill(t *testing.T, store *snapshot.Files, n uint64) {
	t.Helper()
	for seqNr := uint64(1); seqNr <= n; seqNr++ {
		s := snapshot.Snapshot{Metadata: at("a", seqNr), Manifest: "m", Payload: fmt.Appendf(nil, "state %d", seqNr)}
		if err := store.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesTriesTheThreeNewest(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	store := openFiles(t, t.TempDir(), snapshot.FilesConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	fill(t, store, 5)
	for seqNr := uint64(5); seqNr >= 4; seqNr-- {
		flipBit(t, store.Path(at("a", seqNr)), 20)
	}
	if s, err := store.Load(t.Context(), "a", snapshot.Latest()); err != nil || s.SequenceNr != 3 {
		t.Errorf("Load with two damaged files: %d, %v, want 3", s.SequenceNr, err)
	}
	for seqNr := uint64(5); seqNr >= 4; seqNr-- {
		if !strings.Contains(log.String(), store.Path(at("a", seqNr))) {
			t.Errorf("no warning names the file at %d: %s", seqNr, log.String())
		}
	}
	log.Reset()
	flipBit(t, store.Path(at("a", 3)), -1)
	_, err := store.Load(t.Context(), "a", snapshot.Latest())
	if !errors.Is(err, snapshot.ErrCorrupt) || errors.Is(err, snapshot.ErrNotFound) {
		t.Fatalf("Load with three damaged files: %v, want ErrCorrupt", err)
	}
	for seqNr := uint64(3); seqNr <= 5; seqNr++ {
		if !strings.Contains(err.Error(), store.Path(at("a", seqNr))) {
			t.Errorf("the error does not name the file at %d: %v", seqNr, err)
		}
	}
	if damage, ok := errors.AsType[*snapshot.CorruptError](err); !ok || damage.File != store.Path(at("a", 5)) {
		t.Errorf("the error is %#v, want a *CorruptError about the newest", damage)
	}
	if log.Len() > 0 {
		t.Errorf("the returned error was also logged: %s", log.String())
	}
	patient := openFiles(t, store.Dir(), snapshot.FilesConfig{MaxLoadAttempts: 4})
	if s, err := patient.Load(t.Context(), "a", snapshot.Latest()); err != nil || s.SequenceNr != 2 {
		t.Errorf("Load with four attempts: %d, %v, want 2", s.SequenceNr, err)
	}
}

func TestFilesOfANewerVersionStayUntouched(t *testing.T) {
	t.Parallel()
	store := openFiles(t, t.TempDir(), snapshot.FilesConfig{})
	fill(t, store, 2)
	name, newer := store.Path(at("a", 2)), []byte("RFLDSNAP\x07\xf8 something of the future")
	if err := os.WriteFile(name, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := store.Load(t.Context(), "a", snapshot.Latest())
	wantNewer := func(subject string, err error) {
		t.Helper()
		if !errors.Is(err, snapshot.ErrNewerVersion) || errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "a") {
			t.Errorf("%s: %v, want ErrNewerVersion", subject, err)
		}
	}
	wantNewer("Load", err)
	wantNewer("Save", store.Save(t.Context(), snapshot.Snapshot{Metadata: at("a", 2)}))
	wantNewer("Delete", store.Delete(t.Context(), "a", snapshot.Criteria{All: true}))
	var listed []uint64
	for m, err := range store.List(t.Context(), "a", snapshot.Latest()) {
		if err != nil {
			wantNewer("List", err)
		}
		listed = append(listed, m.SequenceNr)
	}
	if len(listed) != 1 {
		t.Errorf("List yielded %v, want only the error, because Delete removed snapshot 1", listed)
	}
	if data, err := os.ReadFile(name); err != nil || !bytes.Equal(data, newer) {
		t.Errorf("the file of the newer version has changed: %q, %v", data, err)
	}
}

func TestFilesListReportsDamagedFiles(t *testing.T) {
	t.Parallel()
	store := openFiles(t, t.TempDir(), snapshot.FilesConfig{})
	fill(t, store, 3)
	flipBit(t, store.Path(at("a", 2)), 23) // its time
	var listed []uint64
	var last error
	for m, err := range store.List(t.Context(), "a", snapshot.Latest()) {
		if last = err; err == nil {
			listed = append(listed, m.SequenceNr)
		}
	}
	if fmt.Sprint(listed) != "[3 1]" || !errors.Is(last, snapshot.ErrCorrupt) || !strings.Contains(last.Error(), store.Path(at("a", 2))) {
		t.Errorf("List = %v, %v, want 3 and 1 and then the damage", listed, last)
	}
}

// TestFilesDeleteOfDamagedFiles checks that a damaged file is deleted if the criteria select it by
// its number alone.
func TestFilesDeleteOfDamagedFiles(t *testing.T) {
	t.Parallel()
	store := openFiles(t, t.TempDir(), snapshot.FilesConfig{})
	fill(t, store, 3)
	flipBit(t, store.Path(at("a", 2)), 20)
	c := snapshot.Latest()
	c.MaxTime = moment(3)
	if err := store.Delete(t.Context(), "a", c); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("Delete by a time that can't be read: %v, want ErrCorrupt", err)
	}
	if _, err := os.Stat(store.Path(at("a", 2))); err != nil {
		t.Errorf("the damaged file was deleted: %v", err)
	}
	if _, err := store.Load(t.Context(), "a", snapshot.At(1)); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("Load without readable snapshots: %v, want ErrNotFound", err)
	}
	if err := store.Delete(t.Context(), "a", snapshot.UpTo(2)); err != nil {
		t.Errorf("Delete by number: %v", err)
	}
	if _, err := os.Stat(store.Path(at("a", 2))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of the damaged file: %v, want ErrNotExist", err)
	}
}

// TestFilesChecksTheIDInsideTheFile checks that a file at the path of another snapshot is not used.
func TestFilesChecksTheIDInsideTheFile(t *testing.T) {
	t.Parallel()
	store := openFiles(t, t.TempDir(), snapshot.FilesConfig{})
	fill(t, store, 2)
	other := snapshot.Snapshot{Metadata: at("b", 2)}
	if err := store.Save(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for _, to := range []snapshot.Metadata{at("b", 2), at("a", 1)} {
		if err := os.Rename(store.Path(at("a", 2)), store.Path(to)); err != nil {
			t.Fatal(err)
		}
		if s, err := store.Load(t.Context(), to.ID, snapshot.Latest()); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("Load of the misplaced file at %v: %v, %v, want ErrCorrupt", to, s.Metadata, err)
		}
		fill(t, store, 2)
	}
}

func TestFilesIgnoresFilesOfOtherNames(t *testing.T) {
	t.Parallel()
	store := openFiles(t, t.TempDir(), snapshot.FilesConfig{})
	fill(t, store, 1)
	dir := filepath.Dir(store.Path(at("a", 1)))
	for _, name := range []string{
		"2.snapshot", "0000000000000000002.snapshot~", "00000000000000000002.snapshot", "000000000000000000x.snapshot",
		"0000000000000000000.snapshot", "9999999999999999999.snapshot", "+000000000000000002.snapshot", ".DS_Store",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := store.Load(t.Context(), "a", snapshot.Latest()); err != nil || s.SequenceNr != 1 {
		t.Errorf("Load: %d, %v, want 1", s.SequenceNr, err)
	}
}

func TestFilesRejectsUnsupportedSnapshots(t *testing.T) {
	t.Parallel()
	store := openFiles(t, t.TempDir(), snapshot.FilesConfig{MaxSize: 10})
	for name, test := range map[string]struct {
		change func(*snapshot.Snapshot)
		want   error
	}{
		"payload of 11 bytes":        {func(s *snapshot.Snapshot) { s.Payload = make([]byte, 11) }, snapshot.ErrTooLarge},
		"no number":                  {func(s *snapshot.Snapshot) { s.SequenceNr = 0 }, snapshot.ErrInvalid},
		"number above int64":         {func(s *snapshot.Snapshot) { s.SequenceNr = 1 << 63 }, snapshot.ErrInvalid},
		"no ID":                      {func(s *snapshot.Snapshot) { s.ID = "" }, snapshot.ErrInvalid},
		"ID of 513 bytes":            {func(s *snapshot.Snapshot) { s.ID = strings.Repeat("x", 513) }, snapshot.ErrInvalid},
		"manifest of 4,097 bytes":    {func(s *snapshot.Snapshot) { s.Manifest = strings.Repeat("x", 4097) }, snapshot.ErrInvalid},
		"time in the year 10000":     {func(s *snapshot.Snapshot) { s.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, snapshot.ErrInvalid},
		"time before the year 1":     {func(s *snapshot.Snapshot) { s.Time = time.Time{}.Add(-1) }, snapshot.ErrInvalid},
		"payload of 10 bytes":        {func(s *snapshot.Snapshot) { s.Payload = make([]byte, 10) }, nil},
		"manifest of 4,096 bytes":    {func(s *snapshot.Snapshot) { s.Manifest = strings.Repeat("x", 4096) }, nil},
		"longest ID and manifest":    {func(s *snapshot.Snapshot) { s.ID, s.Manifest = strings.Repeat("x", 512), strings.Repeat("x", 4096) }, nil},
		"last moment of a long time": {func(s *snapshot.Snapshot) { s.Time = snapshot.Latest().MaxTime }, nil},
	} {
		s := snapshot.Snapshot{Metadata: at("a", 1)}
		test.change(&s)
		if err := store.Save(t.Context(), s); !errors.Is(err, test.want) {
			t.Errorf("Save with %s: %v, want %v", name, err, test.want)
		}
		if _, err := store.Load(t.Context(), s.ID, snapshot.Latest()); err != nil && test.want == nil {
			t.Errorf("Load with %s: %v, want nil", name, err)
		}
	}
}

func TestFilesLimitsLoadedPayloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := openFiles(t, dir, snapshot.FilesConfig{})
	fill(t, large, 1)
	if err := large.Save(t.Context(), snapshot.Snapshot{Metadata: at("a", 2), Payload: make([]byte, 101)}); err != nil {
		t.Fatal(err)
	}
	small := openFiles(t, dir, snapshot.FilesConfig{MaxSize: 100})
	if _, err := small.Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrTooLarge) || errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("Load of a payload above the limit: %v, want ErrTooLarge", err)
	}
	if _, err := small.Load(t.Context(), "a", snapshot.UpTo(1)); err != nil {
		t.Errorf("Load of a smaller payload: %v", err)
	}
}

func TestFilesConfigErrorNamesEachField(t *testing.T) {
	t.Parallel()
	_, err := snapshot.OpenFiles("", snapshot.FilesConfig{MaxSize: -1, MaxLoadAttempts: -1})
	if !errors.Is(err, snapshot.ErrInvalid) {
		t.Fatalf("OpenFiles: %v, want ErrInvalid", err)
	}
	for _, word := range []string{"MaxSize", "MaxLoadAttempts", "directory"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
}

func TestFilesDirectoryIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b", "snapshots")
	store := openFiles(t, dir, snapshot.FilesConfig{})
	fill(t, store, 1)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is accessible to other users: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFilesOpenFailsWithoutWriteAccess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := snapshot.OpenFiles(dir, snapshot.FilesConfig{}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("OpenFiles(%q): %v, want an error that names the directory", dir, err)
		}
	}
	d := newDisk()
	if _, err := snapshot.OpenFilesOn(d, "/data", snapshot.FilesConfig{}); err != nil {
		t.Fatal(err)
	}
	d.fail = func(_ int, subject string) error {
		if strings.HasPrefix(subject, "create") {
			return syscall.EROFS
		}
		return nil
	}
	_, err := snapshot.OpenFilesOn(d, "/data", snapshot.FilesConfig{})
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), `"/data"`) || !strings.Contains(err.Error(), "can't be written") {
		t.Errorf("OpenFiles of a read-only directory: %v, want EROFS with the directory", err)
	}
}

func TestFilesOpenRemovesPartialFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, openFiles(t, dir, snapshot.FilesConfig{}), 1)
	left, foreign := filepath.Join(dir, "partial", "X.partial"), filepath.Join(dir, "partial", "README")
	for _, name := range []string{left, foreign} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	openFiles(t, dir, snapshot.FilesConfig{})
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of a partial file: %v, want ErrNotExist", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file of another program was removed: %v", err)
	}
}

func TestFilesOpenChecksTheLayout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"refold-snapshots 1\n":        nil,
		"refold-snapshots 1":          nil,
		"refold-snapshots 2\n":        snapshot.ErrNewerVersion,
		"refold-snapshots 0\n":        snapshot.ErrCorrupt,
		"refold-snapshots -1\n":       snapshot.ErrCorrupt,
		"refold-snapshots one\n":      snapshot.ErrCorrupt,
		"":                            snapshot.ErrCorrupt,
		strings.Repeat("\x00", 1<<10): snapshot.ErrCorrupt,
	} {
		dir := t.TempDir()
		openFiles(t, dir, snapshot.FilesConfig{})
		if err := os.WriteFile(filepath.Join(dir, "FORMAT"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		store, err := snapshot.OpenFiles(dir, snapshot.FilesConfig{})
		if !errors.Is(err, want) {
			t.Errorf("OpenFiles with FORMAT %.30q: %v, want %v", text, err, want)
		}
		if err == nil {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
