// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The file FORMAT contains the version of the directory layout. It is written after everything that
// it depends on is durable, and before any snapshot.
const (
	formatFile   = "FORMAT"
	formatPrefix = "refold-snapshots "
	layout       = 1
)

func (f *Files) prepare() error {
	found, err := f.readFormat()
	if errors.Is(err, fs.ErrNotExist) {
		found, err = false, f.makeDirs()
	}
	if err != nil {
		return err
	}
	if err := f.removePartials(); err != nil {
		return err
	}
	if err := f.probe(); err != nil {
		return fmt.Errorf("the directory can't be written: %w", err)
	}
	if found {
		return nil
	}
	return f.writeFormat()
}

// readFormat reports whether the file FORMAT exists and contains this layout.
func (f *Files) readFormat() (bool, error) {
	name := filepath.Join(f.dir, formatFile)
	r, err := f.fs.Open(name)
	if err != nil {
		return false, err
	}
	text, err := io.ReadAll(io.LimitReader(r, 64))
	if err = errors.Join(err, r.Close()); err != nil {
		return false, err
	}
	digits, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), formatPrefix)
	version, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case !ok, err != nil, version == 0:
		return false, &CorruptError{File: name, Reason: fmt.Errorf("%.64q is not %q and a number", text, formatPrefix)}
	case version > layout:
		return false, fmt.Errorf("%w: layout %d, this version supports up to %d", ErrNewerVersion, version, layout)
	}
	return true, nil
}

func (f *Files) writeFormat() error {
	write := func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s%d\n", formatPrefix, layout)
		return err
	}
	partial, err := f.writePartial(write)
	if err != nil {
		return err
	}
	if err := f.fs.Rename(partial, filepath.Join(f.dir, formatFile)); err != nil {
		return errors.Join(err, f.fs.Remove(partial))
	}
	return f.fs.SyncDir(f.dir)
}

// makeDirs creates the store's directories and makes them durable.
func (f *Files) makeDirs() error {
	if err := f.makeDir(f.dir); err != nil {
		return err
	}
	if err := f.makeDir(filepath.Join(f.dir, partialDir)); err != nil {
		return err
	}
	// The process that created the existing directories may have been killed before they were
	// durable. Directories created by the user may not permit a sync.
	for dir := filepath.Dir(f.dir); ; dir = filepath.Dir(dir) {
		_ = f.fs.SyncDir(dir)
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// makeDir creates a directory and those above it, each made durable in turn.
func (f *Files) makeDir(dir string) error {
	above := filepath.Dir(dir)
	err := f.fs.Mkdir(dir)
	if errors.Is(err, fs.ErrNotExist) && above != dir {
		if err = f.makeDir(above); err == nil {
			err = f.fs.Mkdir(dir)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.fs.SyncDir(above)
}

// removePartials removes the files of interrupted saves. A save in progress in another process
// loses its partial file and starts again.
func (f *Files) removePartials() error {
	dir := filepath.Join(f.dir, partialDir)
	names, err := f.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, partialSuffix) {
			continue
		}
		if err := f.fs.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// probe checks that files can be written.
func (f *Files) probe() error {
	name, err := f.writePartial(func(io.Writer) error { return nil })
	if err != nil {
		return err
	}
	if err := f.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writePartial writes a new file to the directory of partial files and returns its path. The
// content of the file is durable, its name is not. After an error the file is removed.
func (f *Files) writePartial(write func(io.Writer) error) (string, error) {
	name := filepath.Join(f.dir, partialDir, rand.Text()+partialSuffix)
	w, err := f.fs.Create(name)
	if err != nil {
		return "", err
	}
	if err = write(w); err == nil {
		err = w.Sync()
	}
	err = errors.Join(err, w.Close())
	if err != nil {
		f.discard(name)
		return "", err
	}
	return name, nil
}

// discard removes an unused partial file. If the removal fails, the next OpenFiles removes the
// file.
func (f *Files) discard(name string) { _ = f.fs.Remove(name) }

const (
	partialDir    = "partial"  // files being written
	partialSuffix = ".partial" // other files in the directory are not removed
	fileSuffix    = ".snapshot"
	numberWidth   = 19 // digits of the largest int64
	readableWidth = 40
)

// groupDir returns the directory of all IDs with the same hash prefix. Without these directories,
// one directory could have a million entries, which would be slow to list.
func (f *Files) groupDir(id string) string {
	return filepath.Join(f.dir, idHash(id)[:2])
}

// idDir returns the directory of an ID. The hash makes its name unique on any file system,
// regardless of case sensitivity and Unicode normalization. The text before the hash is for humans.
func (f *Files) idDir(id string) string {
	return filepath.Join(f.groupDir(id), readable(id)+"-"+idHash(id))
}

func idHash(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:20])
}

func readable(id string) string {
	b := []byte(id[:min(len(id), readableWidth)])
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			b[i] = '_'
		}
	}
	return string(b)
}

// parseName returns the number in the name of a snapshot file, and false for a file of any other
// name.
func parseName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || len(digits) != numberWidth {
		return 0, false
	}
	seqNr, err := strconv.ParseUint(digits, 10, 63)
	return seqNr, err == nil && seqNr > 0
}

// numbers returns the sequence numbers of the snapshots of an ID, the highest first.
func (f *Files) numbers(id string) ([]uint64, error) {
	names, err := f.fs.ReadDir(f.idDir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]uint64, 0, len(names))
	for _, name := range names {
		if seqNr, ok := parseName(name); ok {
			found = append(found, seqNr)
		}
	}
	slices.SortFunc(found, func(a, b uint64) int { return cmp.Compare(b, a) })
	return found, nil
}

// candidates returns the sequence numbers within the bounds. Times are stored only inside the
// files, so the caller checks the bounds of the time.
func (f *Files) candidates(id string, c Criteria) ([]uint64, error) {
	found, err := f.numbers(id)
	c = c.Bounded()
	return slices.DeleteFunc(found, func(n uint64) bool {
		return n < c.MinSequenceNr || n > c.MaxSequenceNr
	}), err
}
