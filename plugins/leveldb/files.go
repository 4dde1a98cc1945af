// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
