// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// fileSystem contains the operating system calls of the file store. Tests replace it by a disk that
// fails, fills up or loses power at any step.
type fileSystem interface {
	// Mkdir creates one directory. It fails with fs.ErrExist and fs.ErrNotExist like os.Mkdir.
	Mkdir(dir string) error
	// ReadDir returns the names in a directory, in any order.
	ReadDir(dir string) ([]string, error)
	// Open opens a file for reading.
	Open(name string) (inFile, error)
	// Create creates a file for writing. The file must not exist.
	Create(name string) (outFile, error)
	// Rename moves a file and replaces an existing target.
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes the creations, renames and removals in dir durable.
	SyncDir(dir string) error
}

type inFile interface {
	io.ReadCloser
	Size() (int64, error)
}

type outFile interface {
	io.WriteCloser
	// Sync makes the written data durable.
	Sync() error
}

type osFS struct{}

// Mkdir creates a directory that only its owner can access.
func (osFS) Mkdir(dir string) error { return os.Mkdir(dir, 0o700) }

// ReadDir reads all names at once.
func (osFS) ReadDir(dir string) ([]string, error) {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// Open opens a regular file.
func (osFS) Open(name string) (inFile, error) {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	return sizedFile{f}, nil
}

// Create creates a file that only its owner can access.
func (osFS) Create(name string) (outFile, error) {
	return os.OpenFile(filepath.Clean(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Rename is atomic if the rename of the operating system is atomic.
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file.
func (osFS) Remove(name string) error { return os.Remove(name) }

// SyncDir opens the directory to sync it, as POSIX requires.
func (osFS) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type sizedFile struct{ *os.File }

// Size returns the current size.
func (f sizedFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
