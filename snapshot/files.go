// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"

	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/plugin"
)

// FilesConfig configures a file store. The zero value is ready to use.
type FilesConfig struct {
	// MaxSize is the size of the largest payload in bytes that is saved or loaded. Defaults to 64
	// MiB.
	MaxSize int64
	// MaxLoadAttempts is the number of matching snapshots that Load tries to read before it fails.
	// Defaults to 3.
	MaxLoadAttempts int
	// Shared declares that the directory is on a file system that all nodes of a cluster share, see
	// Local.
	Shared bool
	// Logger logs a warning for each damaged snapshot that Load skips. Defaults to a logger that
	// discards.
	Logger *slog.Logger
}

func (c FilesConfig) validate(dir string) error {
	var errs fielderror.Errors
	if dir == "" {
		errs.Addf("OpenFiles", "needs the name of a directory")
	}
	fielderror.NotNegative(&errs, "FilesConfig.MaxSize", c.MaxSize)
	fielderror.NotNegative(&errs, "FilesConfig.MaxLoadAttempts", c.MaxLoadAttempts)
	return errs.Err(ErrInvalid)
}

func (c FilesConfig) withDefaults() FilesConfig {
	c.MaxSize = cmp.Or(c.MaxSize, 64<<20)
	c.MaxLoadAttempts = cmp.Or(c.MaxLoadAttempts, 3)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Files is a Store that keeps each snapshot in a separate file. OpenFiles opens it; the package
// comment describes its guarantees.
type Files struct {
	dir string
	cfg FilesConfig
	fs  fileSystem

	open *plugin.Handle
}

var (
	_ Store = (*Files)(nil)
	_ Local = (*Files)(nil)
)

// Local implements Local. See FilesConfig.Shared.
func (f *Files) Local() bool { return !f.cfg.Shared }

// OpenFiles opens the store in a directory and creates the directory if necessary. It removes the
// files of interrupted saves. It fails if the directory is not writable, or with ErrNewerVersion if
// a newer version created it.
func OpenFiles(dir string, c FilesConfig) (*Files, error) {
	return openFiles(osFS{}, dir, c)
}

func openFiles(fsys fileSystem, dir string, c FilesConfig) (*Files, error) {
	if err := c.validate(dir); err != nil {
		return nil, fmt.Errorf("snapshot: open files: %w", err)
	}
	f := &Files{dir: dir, cfg: c.withDefaults(), fs: fsys, open: plugin.NewHandle()}
	if err := f.prepare(); err != nil {
		return nil, fmt.Errorf("snapshot: open files in %q: %w", dir, err)
	}
	return f, nil
}

// Close waits for the calls in progress. It never fails.
func (f *Files) Close() error {
	f.open.Shut()
	return nil
}

// List yields the snapshots that existed when it began and were not deleted since. Unreadable files
// are skipped and named by the error at the end.
func (f *Files) List(ctx context.Context, id string, c Criteria) iter.Seq2[Metadata, error] {
	return func(yield func(Metadata, error) bool) {
		numbers, err := f.listNumbers(ctx, id, c)
		errs := []error{err}
		for _, n := range numbers {
			m, err := f.listOne(ctx, id, n)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				errs = append(errs, err)
			case c.Matches(m) && !yield(m, nil):
				return
			}
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerVersion) {
				break // not an error of this file
			}
		}
		if err := errors.Join(errs...); err != nil {
			yield(Metadata{}, fmt.Errorf("snapshot: list %q: %w", id, err))
		}
	}
}

func (f *Files) listNumbers(ctx context.Context, id string, c Criteria) ([]uint64, error) {
	if !f.open.Enter() {
		return nil, ErrClosed
	}
	defer f.open.Leave()
	if err := errors.Join(context.Cause(ctx), CheckID(id)); err != nil {
		return nil, err
	}
	return f.candidates(id, c)
}

func (f *Files) listOne(ctx context.Context, id string, seqNr uint64) (Metadata, error) {
	if !f.open.Enter() {
		return Metadata{}, ErrClosed
	}
	defer f.open.Leave()
	if err := context.Cause(ctx); err != nil {
		return Metadata{}, err
	}
	return f.metadata(id, seqNr)
}

// Delete deletes every match that it can, durably. It keeps files of a newer version, and damaged
// files if the criteria have a time bound, because their time is unreadable. The error names the
// files it kept.
func (f *Files) Delete(ctx context.Context, id string, c Criteria) error {
	if !f.open.Enter() {
		return ErrClosed
	}
	defer f.open.Leave()
	if err := f.deleteAll(ctx, id, c); err != nil {
		return fmt.Errorf("snapshot: delete %q: %w", id, err)
	}
	return nil
}

func (f *Files) deleteAll(ctx context.Context, id string, c Criteria) error {
	if err := errors.Join(context.Cause(ctx), CheckID(id), c.CheckDelete()); err != nil {
		return err
	}
	numbers, err := f.candidates(id, c)
	if err != nil || len(numbers) == 0 {
		return err
	}
	var errs []error
	for _, n := range numbers {
		if err := context.Cause(ctx); err != nil {
			errs = append(errs, err)
			break
		}
		if err := f.deleteOne(id, n, c); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, f.fs.SyncDir(f.idDir(id)))...)
}

func (f *Files) deleteOne(id string, seqNr uint64, c Criteria) error {
	m, err := f.metadata(id, seqNr)
	switch {
	case errors.Is(err, ErrCorrupt) && c.anyTime(): // the sequence number suffices
	case err != nil:
		return err
	case !c.Matches(m):
		return nil
	}
	return f.fs.Remove(f.path(id, seqNr))
}
