// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// openFiles locks the directory, after creating it unless it is only read.
func openFiles(dir string, readOnly bool) (storage.Storage, error) {
	if !readOnly {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
	}
	files, err := storage.OpenFile(dir, readOnly)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, storage.ErrLocked) {
		return nil, fmt.Errorf("%w by another process", ErrInUse)
	}
	return files, err
}

// makeDir creates a directory and those above it, each synced into the one
// above it: a journal must not vanish because its directory does.
func makeDir(dir string) error {
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil || !errors.Is(err, os.ErrNotExist):
		return err
	}
	above := filepath.Dir(dir)
	if above != dir {
		if err := makeDir(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(above)
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such thing
	}
	f, err := os.Open(dir) //nolint:gosec // the directory that the caller chose
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // a file system that can't sync a directory
	}
	return errors.Join(err, f.Close())
}

// probe returns an error unless there is space on the disk for what the engine
// writes when it opens the database after a crash: the contents of its logs.
func probe(files storage.Storage) (err error) {
	size, err := logSize(files)
	if err != nil {
		return err
	}
	w, err := files.Create(probeFile())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(), files.Remove(probeFile())) }()
	block := bytes.Repeat([]byte{1}, 256<<10) // a file system may not store zeros
	for size += 1 << 20; size > 0; size -= int64(len(block)) {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return w.Sync()
}

func probeFile() storage.FileDesc { return storage.FileDesc{Type: storage.TypeTemp} }

// removeProbe removes what a probe left that was cut short.
func removeProbe(files storage.Storage) error {
	err := files.Remove(probeFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func logSize(files storage.Storage) (int64, error) {
	logs, err := files.List(storage.TypeJournal)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, fd := range logs {
		r, err := files.Open(fd)
		if err != nil {
			return 0, err
		}
		size, err := r.Seek(0, io.SeekEnd)
		if err = errors.Join(err, r.Close()); err != nil {
			return 0, err
		}
		total += size
	}
	return total, nil
}
