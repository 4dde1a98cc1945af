// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"path/filepath"

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

// maxRestarts bounds how often a call restarts because another call changed its files. A call
// restarts only after another call has made progress.
const maxRestarts = 100

// Save writes the snapshot to a partial file, makes it durable, and renames it. Another snapshot
// with the same sequence number is therefore replaced atomically. A context that ends before the
// rename leaves no file. After an error while the rename is made durable, the snapshot may exist as
// a whole.
//
// Save fails with ErrTooLarge above FilesConfig.MaxSize. It fails with ErrInvalid for a sequence
// number or a time that the format cannot represent, and for a manifest of more than 4,096 bytes.
// It does not replace a file of a newer version, and fails with ErrNewerVersion instead.
func (f *Files) Save(ctx context.Context, s Snapshot) error {
	if !f.open.Enter() {
		return ErrClosed
	}
	defer f.open.Leave()
	err := s.Check(f.cfg.MaxSize)
	if err == nil {
		err = f.save(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("snapshot: save %q at %d: %w", s.ID, s.SequenceNr, err)
	}
	return nil
}

func (f *Files) save(ctx context.Context, s Snapshot) error {
	target := f.path(s.ID, s.SequenceNr)
	var lost error
	for range maxRestarts {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := f.metadata(s.ID, s.SequenceNr); errors.Is(err, ErrNewerVersion) {
			return err // a damaged file may be replaced, that of a newer version may not
		}
		partial, err := f.writePartial(func(w io.Writer) error { return encode(w, s) })
		if err != nil {
			return err
		}
		err = f.publish(ctx, s.ID, partial, target)
		if errors.Is(err, fs.ErrNotExist) {
			lost = err // OpenFiles of another process removed the partial file
			continue
		}
		return err
	}
	return fmt.Errorf("its partial file was removed during each attempt: %w", lost)
}

func (f *Files) publish(ctx context.Context, id, partial, target string) error {
	err := f.makeIDDir(id)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = f.fs.Rename(partial, target)
	}
	if err != nil {
		f.discard(partial)
		return err
	}
	return f.fs.SyncDir(filepath.Dir(target))
}

// makeIDDir creates the directory of an ID and makes it durable. A directory that contains a
// snapshot is durable, because a snapshot is renamed only afterwards. A directory without snapshots
// may not be durable: such a directory may belong to a save that is in progress, or to a save that
// was interrupted before the sync of the parent directory.
func (f *Files) makeIDDir(id string) error {
	found, err := f.numbers(id)
	if err != nil || len(found) > 0 {
		return err
	}
	group := f.groupDir(id)
	for _, dir := range []string{group, f.idDir(id)} {
		if err := f.fs.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := f.fs.SyncDir(group); err != nil {
		return err
	}
	return f.fs.SyncDir(f.dir)
}

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
