// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/refold-io/refold/snapshot"
)

// onDisk opens a store on a disk in memory with the snapshots 1 to n of "a".
func onDisk(t *testing.T, n uint64) (*snapshot.Files, *disk) {
	t.Helper()
	d := newDisk()
	store, err := snapshot.OpenFilesOn(d, "/data", snapshot.FilesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, store, n)
	return store, d
}

// before runs f once, directly before an operation whose name has the prefix.
func (d *disk) before(prefix string, f func()) {
	d.fail = func(_ int, subject string) error {
		if strings.HasPrefix(subject, prefix) {
			d.fail = nil
			f()
		}
		return nil
	}
}

func TestFilesLoadSearchesAgainAfterRemoval(t *testing.T) {
	t.Parallel()
	store, d := onDisk(t, 3)
	d.before("open "+store.Path(at("a", 3)), func() {
		if err := store.Delete(t.Context(), "a", snapshot.At(3)); err != nil {
			t.Error(err)
		}
		if err := store.Save(t.Context(), snapshot.Snapshot{Metadata: at("a", 4)}); err != nil {
			t.Error(err)
		}
	})
	if s, err := store.Load(t.Context(), "a", snapshot.Latest()); err != nil || s.SequenceNr != 4 {
		t.Errorf("Load = %d, %v, want the snapshot that was saved during the Load", s.SequenceNr, err)
	}
	d.before("open", func() {
		if err := store.Delete(t.Context(), "a", snapshot.Criteria{All: true}); err != nil {
			t.Error(err)
		}
	})
	if _, err := store.Load(t.Context(), "a", snapshot.Latest()); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("Load = %v, want ErrNotFound when all were deleted during the Load", err)
	}
}

func TestFilesListSkipsRemovedFiles(t *testing.T) {
	t.Parallel()
	store, d := onDisk(t, 3)
	d.before("open "+store.Path(at("a", 2)), func() {
		if err := store.Delete(t.Context(), "a", snapshot.At(2)); err != nil {
			t.Error(err)
		}
	})
	var listed []uint64
	for m, err := range store.List(t.Context(), "a", snapshot.Latest()) {
		if err != nil {
			t.Errorf("List: %v", err)
		}
		listed = append(listed, m.SequenceNr)
	}
	if len(listed) != 2 || listed[0] != 3 || listed[1] != 1 {
		t.Errorf("List = %v, want 3 and 1", listed)
	}
}

func TestFilesConcurrentDeletes(t *testing.T) {
	t.Parallel()
	store, d := onDisk(t, 3)
	d.before("remove", func() {
		if err := store.Delete(t.Context(), "a", snapshot.Criteria{All: true}); err != nil {
			t.Error(err)
		}
	})
	if err := store.Delete(t.Context(), "a", snapshot.Criteria{All: true}); err != nil {
		t.Errorf("Delete of snapshots that another call deleted: %v", err)
	}
}

// TestFilesSaveRestartsAfterRemovalOfItsPartialFile checks a save whose partial file is removed by
// another process that opens the directory.
func TestFilesSaveRestartsAfterRemovalOfItsPartialFile(t *testing.T) {
	t.Parallel()
	store, d := onDisk(t, 1)
	d.before("rename", func() {
		if _, err := snapshot.OpenFilesOn(d, "/data", snapshot.FilesConfig{}); err != nil {
			t.Error(err)
		}
	})
	fill(t, store, 2)
	if s, err := store.Load(t.Context(), "a", snapshot.Latest()); err != nil || s.SequenceNr != 2 {
		t.Errorf("Load = %d, %v, want 2", s.SequenceNr, err)
	}
}

// TestFilesThatCannotBeOpenedAreNotDamaged checks that a lack of file descriptors is not reported
// as damage. After a report of damage, Load would return an older state.
func TestFilesThatCannotBeOpenedAreNotDamaged(t *testing.T) {
	t.Parallel()
	store, d := onDisk(t, 2)
	for _, op := range []string{"open " + store.Path(at("a", 2)), "readdir"} {
		d.fail = func(_ int, subject string) error {
			if strings.HasPrefix(subject, op) {
				return syscall.EMFILE
			}
			return nil
		}
		_, err := store.Load(t.Context(), "a", snapshot.Latest())
		if !errors.Is(err, syscall.EMFILE) || errors.Is(err, snapshot.ErrCorrupt) || errors.Is(err, snapshot.ErrNotFound) {
			t.Errorf("Load when %q fails: %v, want EMFILE", op, err)
		}
	}
}

// TestFilesThatCannotBeReadAreDamaged checks that an unreadable sector is reported as damage.
func TestFilesThatCannotBeReadAreDamaged(t *testing.T) {
	t.Parallel()
	store, d := onDisk(t, 2)
	reads := 0
	d.fail = func(_ int, subject string) error {
		if subject == "read" {
			if reads++; reads == 3 { // the payload of the newest
				return syscall.EIO
			}
		}
		return nil
	}
	if s, err := store.Load(t.Context(), "a", snapshot.Latest()); err != nil || s.SequenceNr != 1 {
		t.Errorf("Load = %d, %v, want the older one", s.SequenceNr, err)
	}
}

func TestFilesAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	store, d := onDisk(t, 1)
	d.fail = func(_ int, subject string) error {
		if strings.HasPrefix(subject, "open") || strings.HasPrefix(subject, "rename") {
			return fs.ErrNotExist
		}
		return nil
	}
	if _, err := store.Load(t.Context(), "a", snapshot.Latest()); err == nil || errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("Load = %v, want an error that is not ErrNotFound", err)
	}
	if err := store.Save(t.Context(), snapshot.Snapshot{Metadata: at("a", 2)}); err == nil {
		t.Error("Save returned nil, want an error")
	}
}

func TestFilesCanceledSaveLeavesNoFile(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"create", "write", "sync", "mkdir", "syncdir"} {
		store, d := onDisk(t, 0)
		before := d.files()
		ctx, cancel := context.WithCancel(t.Context())
		d.before(op, cancel)
		err := store.Save(ctx, snapshot.Snapshot{Metadata: at("a", 1), Payload: []byte("state")})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Save whose context ends during %s: %v, want context.Canceled", op, err)
		}
		if after := d.files(); !slices.Equal(after, before) {
			t.Errorf("Save whose context ends during %s leaves %q, want %q", op, after, before)
		}
	}
}
