// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	lerrors "github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Config configures a database. The zero value is the default.
type Config struct {
	// NoSync makes Append and Save return before their data is on disk. A crash of the process
	// alone loses no data. A crash of the machine may lose the last appends, and may leave a log
	// that Open reports as corrupt. Defaults to false: acknowledged data survives a power failure.
	NoSync bool
	// ReadOnly opens the database for reading only. Nothing in the directory changes, and several
	// processes may have the directory open. Defaults to false.
	ReadOnly bool
	// CachedIDs is the number of persistence IDs whose highest sequence number the journal caches,
	// at about 150 bytes each. An append to an uncached ID costs two reads. Queries cache the names
	// of as many IDs, at about 100 bytes each. Defaults to 100,000.
	CachedIDs int
	// MaxSnapshotSize is the largest payload of a snapshot that can be saved or loaded, in bytes.
	// Defaults to 64 MiB; the limit is 1 GiB.
	MaxSnapshotSize int

	format      format
	tune        func(*opt.Options) // for durable data and tests
	reopenPause time.Duration      // see DB.reopen, for tests
	portion     int                // records per portion, for tests
	part        int                // bytes per part of a snapshot, for tests
}

const (
	defaultCachedIDs       = 100_000
	defaultMaxSnapshotSize = 64 << 20
	highestMaxSnapshotSize = 1 << 30
	defaultReopenPause     = 500 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.CachedIDs = cmp.Or(c.CachedIDs, defaultCachedIDs)
	c.MaxSnapshotSize = cmp.Or(c.MaxSnapshotSize, defaultMaxSnapshotSize)
	c.reopenPause = cmp.Or(c.reopenPause, defaultReopenPause)
	c.portion = cmp.Or(c.portion, portionRecords)
	c.part = cmp.Or(c.part, snapshotPart)
	c.format = cmp.Or(c.format, eventsFormat())
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.CachedIDs < 0 {
		errs = append(errs, fmt.Errorf("leveldb: Config.CachedIDs is %d, want at least 0", c.CachedIDs))
	}
	if c.MaxSnapshotSize < 0 || c.MaxSnapshotSize > highestMaxSnapshotSize {
		errs = append(errs, fmt.Errorf("leveldb: Config.MaxSnapshotSize is %d, want 0 to %d", c.MaxSnapshotSize, highestMaxSnapshotSize))
	}
	return errors.Join(errs...)
}

// DB is an open database: a journal and a snapshot store in one directory. It is safe for
// concurrent use.
type DB struct {
	cfg     Config
	files   storage.Storage
	syncDir func() error
	name    string // directory

	journal   Journal
	snapshots SnapshotStore

	// mu is held shared by each operation that uses the engine, and exclusively to replace or close
	// the engine.
	mu      sync.RWMutex
	engine  *engine // nil after Close or a failed reopen
	closed  bool
	failure error     // error of the failed reopen
	retryAt time.Time // earliest time of the next reopen

	handles plugin.Handles
}

// Open opens the database in a directory, and creates the directory if it is missing. It first
// checks and then reads the logs that a crash left.
//
// Open fails with ErrInUse if another process has the directory open, and with journal.ErrCorrupt
// if stored data is damaged in a way that could lose acknowledged data. It fails with
// journal.ErrNewerVersion if a newer version of Refold wrote the data, and with ErrForeign if
// another program wrote it. A failed Open changes nothing.
func Open(dir string, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	files, err := openFiles(dir, cfg.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("leveldb: open %q: %w", dir, err)
	}
	db, err := open(dir, files, func() error { return syncDir(dir) }, cfg)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return db, nil
}

// open opens the database in a storage. The DB owns the storage unless there is an error.
func open(name string, files storage.Storage, syncDir func() error, cfg Config) (*DB, error) {
	e, err := openEngine(files, syncDir, cfg)
	if err != nil {
		return nil, fmt.Errorf("leveldb: open %q: %w", name, err)
	}
	db := &DB{cfg: cfg, files: files, syncDir: syncDir, name: name, engine: e}
	db.journal.handle = handle{open: plugin.NewHandle(), db: db}
	db.snapshots.handle = handle{open: plugin.NewHandle(), db: db}
	return db, nil
}

// Journal returns the journal. All calls return the same one.
//
// The directory is released when the DB is closed. It is also released when the journal and, if
// Snapshots was called, the snapshot store are closed.
func (db *DB) Journal() journal.Journal {
	db.handles.Take(db.journal.open)
	return &db.journal
}

// Snapshots returns the snapshot store. All calls return the same one. See Journal about closing.
func (db *DB) Snapshots() snapshot.Store {
	db.handles.Take(db.snapshots.open)
	return &db.snapshots
}

// Close closes the journal and the snapshot store, waits for running calls, and releases the
// directory. A second Close does nothing.
func (db *DB) Close() error {
	db.journal.open.Shut()
	db.snapshots.open.Shut()
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil
	}
	db.closed = true
	var err error
	if db.engine != nil {
		err = db.engine.db.Close()
		db.engine = nil
	}
	if err = errors.Join(err, db.files.Close()); err != nil {
		return fmt.Errorf("leveldb: close %q: %w", db.name, err)
	}
	return nil
}

// acquire returns the engine for use until release, and reopens it if a write has failed.
func (db *DB) acquire(writing bool) (*engine, error) {
	if writing && db.cfg.ReadOnly {
		return nil, ErrReadOnly
	}
	for {
		db.mu.RLock()
		switch {
		case db.closed:
			db.mu.RUnlock()
			return nil, journal.ErrClosed
		case db.engine != nil && db.engine.usable(writing):
			return db.engine, nil
		}
		db.mu.RUnlock()
		if err := db.reopen(writing); err != nil {
			return nil, err
		}
	}
}

func (db *DB) release() { db.mu.RUnlock() }

// reopen replaces a failed engine. After a failure it does not retry until retryAt, because all
// callers would wait for the lock while the logs are read.
func (db *DB) reopen(writing bool) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed || db.engine != nil && db.engine.usable(writing) {
		return nil // another caller has reopened it
	}
	now := time.Now()
	if db.failure != nil && now.Before(db.retryAt) {
		return db.failure
	}
	if err := db.replaceEngine(); err != nil {
		db.failure = fmt.Errorf("reopen %q after a failed write: %w", db.name, unavailable(err))
		db.retryAt = now.Add(db.cfg.reopenPause)
		return db.failure
	}
	db.failure = nil
	return nil
}

func (db *DB) replaceEngine() error {
	if db.engine != nil {
		// The old engine may still serve reads. Close it only if a new one has a chance to open.
		if err := checkSpace(db.files); err != nil {
			return err
		}
		_ = db.engine.db.Close() // fails for the same reason
		db.engine = nil
	}
	e, err := openEngine(db.files, db.syncDir, db.cfg)
	db.engine = e
	return err
}

// Options returns the options with which this package opens a database, for benchmarks of the bare
// engine. The caller owns the result.
func Options() *opt.Options {
	return &opt.Options{
		Comparer:                     newOrder(eventsFormat()),
		Filter:                       filter.NewBloomFilter(10),
		WriteBuffer:                  16 << 20,
		BlockCacheCapacity:           32 << 20,
		CompactionTableSize:          8 << 20,
		DisableLargeBatchTransaction: true,              // a batch of any size is one record of the log
		Strict:                       opt.DefaultStrict, // the rest is checked before opening
	}
}

// format is a kind of database and its version. Its string is the name of the comparer. The first
// record of every manifest contains this name, so the name can be read before the engine changes
// anything. It identifies databases of other programs and of other versions.
type format struct {
	prefix  string
	version uint32
}

func eventsFormat() format { return format{"refold.leveldb/", 2} }

func (f format) String() string { return f.prefix + strconv.FormatUint(uint64(f.version), 10) }

// check returns an error unless comparer is the name of this format.
func (f format) check(comparer string) error {
	version, ours := strings.CutPrefix(comparer, f.prefix)
	n, err := strconv.ParseUint(version, 10, 32)
	switch {
	case !ours || err != nil || n < uint64(f.version):
		return fmt.Errorf("%w: its comparer is %q, want %q", ErrForeign, comparer, f)
	case n > uint64(f.version):
		return fmt.Errorf("%w: format %d, this version supports %d", journal.ErrNewerVersion, n, f.version)
	}
	return nil
}

// order compares keys bytewise. Its name is that of the format.
type order struct {
	comparer.Comparer
	name string
}

func newOrder(f format) order { return order{comparer.DefaultComparer, f.String()} }

// Name implements comparer.Comparer.
func (o order) Name() string { return o.name }

// handle is the access of a journal, a snapshot store or a durable store to the engine.
type handle struct {
	open *plugin.Handle
	db   *DB
}

// Local implements snapshot.Local: only processes on this machine can read the data.
func (handle) Local() bool { return true }

// use returns the engine for one call or one page. The caller must call release.
func (h *handle) use(ctx context.Context, writing bool) (*engine, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !h.open.Enter() {
		return nil, journal.ErrClosed
	}
	e, err := h.db.acquire(writing)
	if err != nil {
		h.open.Leave()
	}
	return e, err
}

func (h *handle) release() {
	h.db.release()
	h.open.Leave()
}

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

// unavailable makes err match ErrUnavailable, unless err already matches a more specific error.
func unavailable(err error) error {
	if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNewerVersion) || errors.Is(err, journal.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
}

// corrupt wraps an error about a file or a record as corruption, unless the data has a newer
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

// wrap adds the operation to an error. It is deferred.
func wrap(err *error, operation string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("leveldb: %s: %w", fmt.Sprintf(operation, args...), *err)
	}
}
