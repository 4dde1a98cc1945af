// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// storageGuard is the storage of one open engine. It adds guarantees that the engine lacks:
//
//   - After a failed write or sync of a log or manifest, the guard permits no further change, as if
//     the power had failed at that point. Without the guard, the engine would continue. It would
//     write a second record with the same sequence after the broken record, acknowledge the second
//     record, and skip it at the next start. A failed sync must not be retried either: the kernel
//     may discard the data that it could not write.
//   - A new log is synced into its directory before it is used, and the previous log is synced when
//     it is closed. A log is therefore never ahead of an earlier one. A new table is synced into the
//     directory before a manifest names it.
//   - A table whose footer points outside the file is rejected. The engine would allocate memory of
//     any size that the footer contains.
type storageGuard struct {
	storage.Storage
	syncDir func() error
	// attempts counts the writes to logs, and syncs the successful syncs of logs.
	attempts, syncs atomic.Uint64
	// truncated is set when a write to a log wrote only a part of its data.
	truncated atomic.Bool
	failure   atomic.Pointer[error]
}

func (g *storageGuard) err() error {
	if p := g.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail records a failure. Afterwards the guard permits no further change.
func (g *storageGuard) fail(err error) error {
	if err != nil {
		g.failure.CompareAndSwap(nil, &err)
	}
	return err
}

// explain translates an error of the engine. It adds the recorded failure, because the error of the
// engine may contain the failure only as text.
func (g *storageGuard) explain(err error) error {
	if cause := g.err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return translate(err)
}

// mark is a point in the sequence of writes to logs.
type mark struct{ attempts, syncs uint64 }

func (g *storageGuard) mark() mark { return mark{g.attempts.Load(), g.syncs.Load()} }

// notStored reports whether a failed write to the database that began at m is certainly not stored.
// This is the case if nothing was written to a log since m. It is also the case if the written data
// ends in the middle of a record and no other sync happened since m, because nothing is written
// after that record.
func (g *storageGuard) notStored(m mark, synced bool) bool {
	return g.attempts.Load() == m.attempts || synced && g.truncated.Load() && g.syncs.Load() == m.syncs
}

var errStopped = errors.New("leveldb: stopped after a failed write")

func (g *storageGuard) stopped() error {
	if err := g.err(); err != nil {
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	return nil
}

// Create implements storage.Storage.
func (g *storageGuard) Create(fd storage.FileDesc) (storage.Writer, error) {
	if err := g.stopped(); err != nil {
		return nil, err
	}
	w, err := g.Storage.Create(fd)
	if err != nil {
		return nil, err
	}
	if fd.Type == storage.TypeJournal {
		if err := g.syncDir(); err != nil {
			return nil, errors.Join(g.fail(err), w.Close())
		}
	}
	guarded := &guardedWriter{Writer: w, guard: g, fd: fd}
	if fd.Type == storage.TypeTable {
		guarded.blocks = bufio.NewWriterSize(w, tableBuffer)
	}
	return guarded, nil
}

// SetMeta implements storage.Storage. It syncs the manifest into its directory first.
func (g *storageGuard) SetMeta(fd storage.FileDesc) error {
	if err := g.stopped(); err != nil {
		return err
	}
	if err := g.syncDir(); err != nil {
		return g.fail(err)
	}
	return g.fail(g.Storage.SetMeta(fd))
}

// Remove implements storage.Storage. It always returns nil, because after an error of Remove the
// engine panics or counts its files wrongly. The next Open ignores and removes a leftover file.
func (g *storageGuard) Remove(fd storage.FileDesc) error {
	if g.stopped() == nil {
		_ = g.Storage.Remove(fd)
	}
	return nil
}

// Rename implements storage.Storage.
func (g *storageGuard) Rename(oldfd, newfd storage.FileDesc) error {
	if err := g.stopped(); err != nil {
		return err
	}
	return g.fail(g.Storage.Rename(oldfd, newfd))
}

// Open implements storage.Storage.
func (g *storageGuard) Open(fd storage.FileDesc) (storage.Reader, error) {
	r, err := g.Storage.Open(fd)
	if err != nil || fd.Type != storage.TypeTable {
		return r, err
	}
	if err := checkFooter(r); err != nil {
		_ = r.Close()
		return nil, &storage.ErrCorrupted{Fd: fd, Err: err}
	}
	return r, nil
}

// Close does nothing: the storage outlives the engine.
func (g *storageGuard) Close() error { return nil }

// guardedWriter writes one file. It is used by one goroutine.
type guardedWriter struct {
	storage.Writer
	guard *storageGuard
	fd    storage.FileDesc
	dirty bool
	// blocks is the buffer of a table, nil for another file. The engine writes each block of 4 KiB
	// separately, and syncs each table before it uses it.
	blocks *bufio.Writer
}

const tableBuffer = 64 << 10

// critical reports whether the engine continues to write the file after an error. A table is used
// only if no write to it failed.
func (w *guardedWriter) critical() bool { return w.fd.Type != storage.TypeTable }

func (w *guardedWriter) fail(err error) error {
	if w.critical() {
		return w.guard.fail(err)
	}
	return err
}

// Write implements io.Writer.
func (w *guardedWriter) Write(b []byte) (int, error) {
	if err := w.guard.stopped(); err != nil {
		return 0, err
	}
	w.dirty = true
	if w.blocks != nil {
		return w.blocks.Write(b)
	}
	log := w.fd.Type == storage.TypeJournal
	if log {
		w.guard.attempts.Add(1)
	}
	n, err := w.Writer.Write(b)
	if log && err != nil && n < len(b) {
		w.guard.truncated.Store(true)
	}
	return n, w.fail(err)
}

// Sync implements storage.Syncer.
func (w *guardedWriter) Sync() error {
	if err := w.guard.stopped(); err != nil {
		return err
	}
	if w.blocks != nil {
		if err := w.blocks.Flush(); err != nil {
			return err
		}
	}
	if err := w.Writer.Sync(); err != nil {
		return w.fail(err)
	}
	w.dirty = false
	if w.fd.Type == storage.TypeJournal {
		w.guard.syncs.Add(1)
	}
	if w.fd.Type == storage.TypeTable {
		return w.fail(w.guard.syncDir())
	}
	return nil
}

// Close implements io.Closer. Errors of closing the file are ignored, because its contents are
// synced or the file is an unused table. After such an error, the engine would continue to write to
// the file.
func (w *guardedWriter) Close() error {
	var err error
	if w.critical() && w.dirty {
		err = w.Sync()
	}
	_ = w.Writer.Close()
	return err
}

// readOnlyFiles presents several logs to the engine as one. In read-only mode the engine can read
// only one log.
type readOnlyFiles struct {
	storage.Storage
	logs []storage.FileDesc // the logs to read, at least two
}

func (f *readOnlyFiles) shown() storage.FileDesc { return f.logs[len(f.logs)-1] }

// List implements storage.Storage.
func (f *readOnlyFiles) List(types storage.FileType) ([]storage.FileDesc, error) {
	all, err := f.Storage.List(types)
	return slices.DeleteFunc(all, func(fd storage.FileDesc) bool {
		return fd.Type == storage.TypeJournal && fd != f.shown()
	}), err
}

// Open implements storage.Storage.
func (f *readOnlyFiles) Open(fd storage.FileDesc) (storage.Reader, error) {
	if fd != f.shown() {
		return f.Storage.Open(fd)
	}
	joined := new(joinedLogs)
	var parts []io.Reader
	for i, fd := range f.logs {
		r, err := f.Storage.Open(fd)
		if err != nil {
			return nil, errors.Join(err, joined.Close())
		}
		joined.logs, parts = append(joined.logs, r), append(parts, r)
		if i == len(f.logs)-1 {
			break
		}
		size, err := r.Seek(0, io.SeekEnd)
		if _, serr := r.Seek(0, io.SeekStart); err != nil || serr != nil {
			return nil, errors.Join(err, serr, joined.Close())
		}
		parts = append(parts, bytes.NewReader(make([]byte, (blockSize-size%blockSize)%blockSize)))
	}
	joined.Reader = io.MultiReader(parts...)
	return joined, nil
}

// joinedLogs reads logs one after the other. Each but the last is padded with zeros to a whole
// block, as the format permits.
type joinedLogs struct {
	io.Reader
	logs []storage.Reader
}

var errOnlyRead = errors.New("leveldb: joined logs can only be read sequentially")

// Seek implements io.Seeker. It always fails.
func (j *joinedLogs) Seek(int64, int) (int64, error) { return 0, errOnlyRead }

// ReadAt implements io.ReaderAt. It always fails.
func (j *joinedLogs) ReadAt([]byte, int64) (int, error) { return 0, errOnlyRead }

// Close implements io.Closer.
func (j *joinedLogs) Close() error {
	var err error
	for _, r := range j.logs {
		err = errors.Join(err, r.Close())
	}
	return err
}
