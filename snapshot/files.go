// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// FilesConfig holds what may be said about a file store. The zero value is
// ready to use.
type FilesConfig struct {
	// MaxSize is the size of the largest payload in bytes that is saved or
	// loaded. Defaults to 64 MiB.
	MaxSize int64
	// MaxLoadAttempts is how many matching snapshots a Load tries before it
	// gives up when one after the other can't be read. Defaults to 3.
	MaxLoadAttempts int
	// Logger gets a warning for each snapshot that a Load had to pass over.
	// Defaults to discarding it.
	Logger *slog.Logger
}

func (c FilesConfig) validate() error {
	var errs []error
	if c.MaxSize < 0 {
		errs = append(errs, fmt.Errorf("%w: MaxSize %d is negative", ErrInvalid, c.MaxSize))
	}
	if c.MaxLoadAttempts < 0 {
		errs = append(errs, fmt.Errorf("%w: MaxLoadAttempts %d is negative", ErrInvalid, c.MaxLoadAttempts))
	}
	return errors.Join(errs...)
}

func (c FilesConfig) withDefaults() FilesConfig {
	c.MaxSize = cmp.Or(c.MaxSize, 64<<20)
	c.MaxLoadAttempts = cmp.Or(c.MaxLoadAttempts, 3)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Files is a Store that keeps each snapshot in a file of its own. Open it with
// OpenFiles; see the package comment for what it promises.
type Files struct {
	dir string
	cfg FilesConfig
	fs  fileSystem

	mu     sync.RWMutex // held for reading by each call in progress
	closed bool
}

var _ Store = (*Files)(nil)

// OpenFiles opens the store in a directory, which is created if it is not
// there. It removes the files that an interrupted save left behind, and fails
// if the directory can't be written or holds the files of a newer version
// (ErrNewerVersion).
func OpenFiles(dir string, c FilesConfig) (*Files, error) {
	return openFiles(osFS{}, dir, c)
}

func openFiles(fsys fileSystem, dir string, c FilesConfig) (*Files, error) {
	err := c.validate()
	if dir == "" {
		err = errors.Join(err, fmt.Errorf("%w: the directory has no name", ErrInvalid))
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: open files: %w", err)
	}
	f := &Files{dir: dir, cfg: c.withDefaults(), fs: fsys}
	if err := f.prepare(); err != nil {
		return nil, fmt.Errorf("snapshot: open files in %q: %w", dir, err)
	}
	return f, nil
}

// Close waits for the calls in progress. It never fails.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// enter begins a call; unless it fails, leave ends it.
func (f *Files) enter() error {
	f.mu.RLock()
	if f.closed {
		f.mu.RUnlock()
		return ErrClosed
	}
	return nil
}

func (f *Files) leave() { f.mu.RUnlock() }
