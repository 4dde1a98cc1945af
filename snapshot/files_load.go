// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
)

var errNoMatch = errors.New("snapshot: not within the bounds")

// Load returns the newest match. If files are damaged, Load tries the FilesConfig.MaxLoadAttempts
// newest ones and logs a warning for each damaged file that it skips. Load does not skip an intact
// file of a newer version, or one above FilesConfig.MaxSize. For such a file it fails with
// ErrNewerVersion or ErrTooLarge.
//
// The payload belongs to the caller.
func (f *Files) Load(ctx context.Context, id string, c Criteria) (Snapshot, error) {
	if !f.open.Enter() {
		return Snapshot{}, ErrClosed
	}
	defer f.open.Leave()
	s, err := f.load(ctx, id, c)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: load %q: %w", id, err)
	}
	return s, nil
}

func (f *Files) load(ctx context.Context, id string, c Criteria) (Snapshot, error) {
	if err := CheckID(id); err != nil {
		return Snapshot{}, err
	}
	for range maxRestarts {
		s, err := f.search(ctx, id, c)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since it was listed
		}
		return s, err
	}
	return Snapshot{}, errors.New("its files were deleted during each attempt")
}

// search lists the files once and reads them, the newest first. It fails with fs.ErrNotExist if one
// of them was removed in between.
func (f *Files) search(ctx context.Context, id string, c Criteria) (Snapshot, error) {
	if err := context.Cause(ctx); err != nil {
		return Snapshot{}, err
	}
	numbers, err := f.candidates(id, c)
	if err != nil {
		return Snapshot{}, err
	}
	var unreadable []error
	for _, n := range numbers {
		if err := context.Cause(ctx); err != nil {
			return Snapshot{}, err
		}
		if len(unreadable) == f.cfg.MaxLoadAttempts {
			break
		}
		s, err := f.read(id, n, c)
		switch {
		case err == nil:
			f.warn(ctx, id, unreadable)
			return s, nil
		case errors.Is(err, errNoMatch):
		case errors.Is(err, ErrCorrupt):
			unreadable = append(unreadable, err)
		default:
			return Snapshot{}, err
		}
	}
	return Snapshot{}, cmp.Or(errors.Join(unreadable...), ErrNotFound)
}

func (f *Files) warn(ctx context.Context, id string, unreadable []error) {
	for _, err := range unreadable {
		f.cfg.Logger.WarnContext(ctx, "snapshot skipped: it is damaged",
			slog.String("persistence_id", id), slog.Any("error", err))
	}
}

func (f *Files) read(id string, seqNr uint64, c Criteria) (Snapshot, error) {
	file, h, err := f.openFile(id, seqNr)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := f.readPayload(file, h, c)
	return s, errors.Join(err, file.Close())
}

func (f *Files) readPayload(file inFile, h header, c Criteria) (Snapshot, error) {
	if !c.Matches(h.Metadata) {
		return Snapshot{}, errNoMatch
	}
	if h.payload > f.cfg.MaxSize {
		return Snapshot{}, fmt.Errorf("%w: payload has %d bytes, at most %d are allowed", ErrTooLarge, h.payload, f.cfg.MaxSize)
	}
	s, err := decodePayload(file, h)
	if err != nil {
		return Snapshot{}, f.corrupt(h.ID, h.SequenceNr, err)
	}
	return s, nil
}

func (f *Files) metadata(id string, seqNr uint64) (Metadata, error) {
	file, h, err := f.openFile(id, seqNr)
	if err != nil {
		return Metadata{}, err
	}
	return h.Metadata, file.Close()
}

// openFile opens the file of a sequence number and reads its header. An error that matches
// ErrCorrupt concerns the content of this file; other errors do not.
func (f *Files) openFile(id string, seqNr uint64) (inFile, header, error) {
	file, err := f.fs.Open(f.path(id, seqNr))
	if err != nil {
		return nil, header{}, err
	}
	size, err := file.Size()
	var h header
	if err == nil {
		h, err = decodeHeader(file, size)
	}
	if err == nil && (h.ID != id || h.SequenceNr != seqNr) {
		err = fmt.Errorf("file contains %q at %d", h.ID, h.SequenceNr)
	}
	if err != nil {
		return nil, header{}, f.corrupt(id, seqNr, errors.Join(err, file.Close()))
	}
	return file, h, nil
}

// corrupt converts err into a *CorruptError if it describes damage, and returns other errors
// unchanged.
func (f *Files) corrupt(id string, seqNr uint64, err error) error {
	if errors.Is(err, ErrNewerVersion) {
		return fmt.Errorf("%s: %w", f.path(id, seqNr), err)
	}
	return &CorruptError{File: f.path(id, seqNr), Reason: err}
}

func (f *Files) path(id string, seqNr uint64) string {
	return filepath.Join(f.idDir(id), fmt.Sprintf("%0*d%s", numberWidth, seqNr, fileSuffix))
}
