// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/syndtr/goleveldb/leveldb"
	lerrors "github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/journal"
)

var (
	// ErrInUse reports that another process, or another DB of this process, has the directory open.
	ErrInUse = errors.New("leveldb: directory is in use")
	// ErrForeign reports that the directory holds a LevelDB database that Refold did not write.
	ErrForeign = errors.New("leveldb: not a Refold database")
	// ErrReadOnly is returned by operations that would change a database opened with
	// Config.ReadOnly.
	ErrReadOnly = errors.New("leveldb: database is read-only")
)

// translate converts an error of the engine: corruption becomes a *journal.CorruptError, other
// errors match ErrUnavailable.
func translate(err error) error {
	var (
		damaged *lerrors.ErrCorrupted
		stored  *storage.ErrCorrupted
		missing *lerrors.ErrMissingFiles
		ours    *journal.CorruptError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours), errors.Is(err, journal.ErrNewerVersion), errors.Is(err, ErrForeign), errors.Is(err, ErrReadOnly):
		return err
	case errors.Is(err, leveldb.ErrReadOnly):
		return ErrReadOnly
	case errors.As(err, &missing) && len(missing.Fds) > 0:
		return corruptf(missing.Fds[0].String(), "file is missing")
	case errors.As(err, &damaged):
		return corruptFile(damaged.Fd, damaged.Err)
	case errors.As(err, &stored):
		return corruptFile(stored.Fd, stored.Err)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return corrupt("database", err) // a missing or truncated table
	}
	return unavailable(err)
}

// unavailable makes err match ErrUnavailable, unless it has a more specific match.
func unavailable(err error) error {
	if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNewerVersion) || errors.Is(err, journal.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
}

// corrupt wraps an error about a file or a record as corruption, unless the record has a newer
// version.
func corrupt(file string, err error) error {
	if errors.Is(err, journal.ErrNewerVersion) {
		return fmt.Errorf("%s: %w", file, err)
	}
	return &journal.CorruptError{File: file, Offset: -1, Detail: err.Error()}
}

func corruptf(file, format string, args ...any) error {
	return corrupt(file, fmt.Errorf(format, args...))
}

func corruptFile(fd storage.FileDesc, err error) error {
	if fd.Zero() {
		return corrupt("database", err)
	}
	return corrupt(fd.String(), err)
}
