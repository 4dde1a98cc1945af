// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// guard stands between the engine and the files for as long as one engine is
// open, and makes up for what the engine lacks:
//
//   - Once a write or sync of a log or manifest has failed, nothing is changed
//     any more, as if the power had been cut there. The engine would go on, put
//     a second record under the same number behind the broken one, acknowledge
//     it and skip it at the next start. A sync that failed must not be
//     tried again either: the kernel forgets what it could not write.
//   - A new log is synced into its directory before it is used, and the log
//     before it is synced when it is closed, so that a log is never ahead of an
//     earlier one. A new table is synced into the directory before a manifest
//     names it.
//   - A manifest that is begun says the latest version of the format.
//   - A table whose footer points outside the file is refused; the engine would
//     allocate whatever stands there.
type guard struct {
	storage.Storage
	syncDir func() error
	// order gets version when a manifest is begun: that of the format is in
	// there.
	order   *order
	version uint32
	// attempts counts the writes to logs that were let through, and syncs those
	// syncs of logs that succeeded.
	attempts, syncs atomic.Uint64
	// cutShort is set when a write to a log failed before its end.
	cutShort atomic.Bool
	failure  atomic.Pointer[error]
}

func newGuard(base storage.Storage, syncDir func() error, f format, stored, version uint32) *guard {
	return &guard{Storage: base, syncDir: syncDir, order: newOrder(f, stored), version: version}
}

// err returns the first failure.
func (g *guard) err() error {
	if p := g.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail records a failure after which nothing is changed any more.
func (g *guard) fail(err error) error {
	if err != nil {
		g.failure.CompareAndSwap(nil, &err)
	}
	return err
}

// explain translates an error of the engine, which may hold the one that is the
// reason as text only.
func (g *guard) explain(err error) error {
	if cause := g.err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return translate(err)
}

// mark is a point in time.
type mark struct{ attempts, syncs uint64 }

func (g *guard) mark() mark { return mark{g.attempts.Load(), g.syncs.Load()} }

// certain reports whether a write to the database that began at m, and failed,
// is surely not stored: nothing was written to a log since; or what was
// written, and nothing else was synced since, ends in the middle of a record,
// and nothing will ever be written behind that.
func (g *guard) certain(m mark, synced bool) bool {
	return g.attempts.Load() == m.attempts || synced && g.cutShort.Load() && g.syncs.Load() == m.syncs
}

var errStopped = errors.New("leveldb: stopped after a failed write")

func (g *guard) stopped() error {
	if err := g.err(); err != nil {
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	return nil
}

// Create implements storage.Storage.
func (g *guard) Create(fd storage.FileDesc) (storage.Writer, error) {
	if err := g.stopped(); err != nil {
		return nil, err
	}
	w, err := g.Storage.Create(fd)
	if err != nil {
		return nil, err
	}
	switch fd.Type {
	case storage.TypeJournal:
		if err := g.syncDir(); err != nil {
			return nil, errors.Join(g.fail(err), w.Close())
		}
	case storage.TypeManifest:
		g.order.version.Store(g.version) // the engine asks for its name next
	default:
	}
	return &guardedWriter{Writer: w, guard: g, fd: fd}, nil
}

// SetMeta implements storage.Storage.
func (g *guard) SetMeta(fd storage.FileDesc) error {
	if err := g.stopped(); err != nil {
		return err
	}
	return g.fail(g.Storage.SetMeta(fd))
}

// Remove implements storage.Storage. It never fails: what should be gone is
// ignored when the database is opened the next time, and removed then, while the
// engine panics or loses count when it is told.
func (g *guard) Remove(fd storage.FileDesc) error {
	if g.stopped() == nil {
		_ = g.Storage.Remove(fd)
	}
	return nil
}

// Rename implements storage.Storage.
func (g *guard) Rename(oldfd, newfd storage.FileDesc) error {
	if err := g.stopped(); err != nil {
		return err
	}
	return g.fail(g.Storage.Rename(oldfd, newfd))
}

// Open implements storage.Storage.
func (g *guard) Open(fd storage.FileDesc) (storage.Reader, error) {
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
func (g *guard) Close() error { return nil }

// guardedWriter is one file that is being written. Only one goroutine uses it.
type guardedWriter struct {
	storage.Writer
	guard *guard
	fd    storage.FileDesc
	dirty bool
}

// vital reports whether the file is one that the engine goes on writing after
// an error. A table is written once and used only if nothing failed.
func (w *guardedWriter) vital() bool { return w.fd.Type != storage.TypeTable }

func (w *guardedWriter) fail(err error) error {
	if w.vital() {
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
	if w.fd.Type != storage.TypeJournal {
		n, err := w.Writer.Write(b)
		return n, w.fail(err)
	}
	w.guard.attempts.Add(1)
	n, err := w.Writer.Write(b)
	if err != nil && n < len(b) {
		w.guard.cutShort.Store(true)
	}
	return n, w.fail(err)
}

// Sync implements storage.Syncer.
func (w *guardedWriter) Sync() error {
	if err := w.guard.stopped(); err != nil {
		return err
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

// Close implements io.Closer. An error of the file itself is of no interest once
// its contents are synced, or if it is a table that is about to be dropped;
// the engine would go on writing to it.
func (w *guardedWriter) Close() error {
	var err error
	if w.vital() && w.dirty {
		err = w.Sync()
	}
	_ = w.Writer.Close()
	return err
}
