// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Config says how a database is opened. The zero value is the default.
type Config struct {
	// NoSync makes Append and Save return before their data is on disk. A
	// process that dies loses nothing; when the machine goes down, the last
	// appends may be lost, and what is left may be such that Open reports it as
	// corrupt. Defaults to false: what was acknowledged survives a power cut.
	NoSync bool
	// ReadOnly opens the database for tools that only look at it. Nothing in
	// the directory is changed, and several of them may have it open at a time.
	// Defaults to false.
	ReadOnly bool
	// CachedIDs is how many persistence IDs the journal remembers the highest
	// sequence number of, at about 150 bytes each; the append to another one
	// costs two reads. Queries remember the names of as many, at about 100 bytes
	// each. Defaults to 100,000.
	CachedIDs int
	// MaxSnapshotSize is the largest payload of a snapshot, in bytes, that is
	// saved or loaded. Defaults to 64 MiB; at most 1 GiB.
	MaxSnapshotSize int

	format      format
	tune        func(*opt.Options) // for durable data, and for tests
	reopenPause time.Duration      // see DB.reopen, for tests
	portion     int                // records that are read at once, for tests
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
	c.format = cmp.Or(c.format, eventsFormat())
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.CachedIDs < 0 {
		errs = append(errs, fmt.Errorf("leveldb: Config.CachedIDs is %d, less than 0", c.CachedIDs))
	}
	if c.MaxSnapshotSize < 0 || c.MaxSnapshotSize > highestMaxSnapshotSize {
		errs = append(errs, fmt.Errorf("leveldb: Config.MaxSnapshotSize is %d, not 0 to %d", c.MaxSnapshotSize, highestMaxSnapshotSize))
	}
	return errors.Join(errs...)
}

// DB is an open database: a journal and a snapshot store in one directory. It
// is safe for concurrent use.
type DB struct {
	cfg     Config
	files   storage.Storage
	syncDir func() error
	name    string // of the directory

	journal   Journal
	snapshots SnapshotStore

	// mu is held shared by every operation while it uses the engine, and
	// exclusively to replace or close it.
	mu      sync.RWMutex
	engine  *engine // nil if it could not be reopened, or was closed
	closed  bool
	failure error     // why it could not be reopened
	retryAt time.Time // not before

	handleMu sync.Mutex
	handles  int // taken and not closed
}

// Open opens the database in a directory, which is created if it is missing.
// It reads the logs that a crash left and checks them first. The first time for a
// directory of an older format it takes longer; see the package.
//
// It fails with ErrInUse if somebody else has the directory open, with
// journal.ErrCorrupt if stored data is damaged in a way that could lose
// what was acknowledged, with journal.ErrNewerVersion if a newer version of
// Refold wrote it, and with ErrForeign if something else did. It changes
// nothing then.
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

// open opens the database in a storage, which belongs to the DB if there is no
// error.
func open(name string, files storage.Storage, syncDir func() error, cfg Config) (*DB, error) {
	e, err := openEngine(files, syncDir, cfg)
	if err != nil {
		return nil, fmt.Errorf("leveldb: open %q: %w", name, err)
	}
	db := &DB{cfg: cfg, files: files, syncDir: syncDir, name: name, engine: e}
	db.journal.db, db.snapshots.db = db, db
	db.journal.ended, db.snapshots.ended = make(chan struct{}), make(chan struct{})
	return db, nil
}

// Journal returns the journal. It is the same one each time.
//
// Close the DB, or the journal and, if it was taken, the snapshot store: the
// directory is released with the last of them.
func (db *DB) Journal() journal.Journal {
	db.take(&db.journal.handle)
	return &db.journal
}

// Snapshots returns the snapshot store. It is the same one each time. See
// Journal about closing.
func (db *DB) Snapshots() snapshot.Store {
	db.take(&db.snapshots.handle)
	return &db.snapshots
}

// Close closes the journal and the snapshot store, waits for the calls in
// progress, and releases the directory. A second Close does nothing.
func (db *DB) Close() error {
	db.journal.shut()
	db.snapshots.shut()
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil
	}
	db.closed = true
	var err error
	if db.engine != nil {
		err = db.engine.close()
		db.engine = nil
	}
	if err = errors.Join(err, db.files.Close()); err != nil {
		return fmt.Errorf("leveldb: close %q: %w", db.name, err)
	}
	return nil
}

// acquire returns the engine, opening it anew if a write has failed, and keeps
// it until release is called.
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

// reopen opens the engine anew. After a failure to do so it does not try again
// for a short while: all callers would queue behind it, and reading the logs
// takes time.
func (db *DB) reopen(writing bool) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed || db.engine != nil && db.engine.usable(writing) {
		return nil // somebody else was quicker
	}
	now := time.Now()
	if db.failure != nil && now.Before(db.retryAt) {
		return db.failure
	}
	if err := db.replaceEngine(); err != nil {
		db.failure = fmt.Errorf("opening %q again after a failed write: %w", db.name, unavailable(err))
		db.retryAt = now.Add(db.cfg.reopenPause)
		return db.failure
	}
	db.failure = nil
	return nil
}

func (db *DB) replaceEngine() error {
	if db.engine != nil {
		// The old one may still be good for reading; it is given up only if
		// there is hope.
		if err := probe(db.files); err != nil {
			return err
		}
		_ = db.engine.close() // it fails for the reason that is known already
		db.engine = nil
	}
	e, err := openEngine(db.files, db.syncDir, db.cfg)
	db.engine = e
	return err
}

// Options returns the options under which a database of this package is opened:
// what a benchmark needs to compare with the engine alone. The caller owns it.
func Options() *opt.Options {
	return &opt.Options{
		Comparer:                     newOrder(eventsFormat(), formatVersion),
		Filter:                       filter.NewBloomFilter(10),
		WriteBuffer:                  16 << 20,
		BlockCacheCapacity:           32 << 20,
		CompactionTableSize:          8 << 20,
		DisableLargeBatchTransaction: true,              // a batch is one record of the log, whatever its size
		Strict:                       opt.DefaultStrict, // and the rest is checked before opening
	}
}

// The name of the key order stands in the first record of every manifest, where
// it can be read before the engine changes anything. So it carries the version
// of the format, and the directory of another program is told apart too.
const (
	orderPrefix   = "refold.leveldb/"
	formatVersion = 2
	// unorderedVersion is the version that had no order of all events.
	unorderedVersion = 1
)

// format is a kind of database, and the latest version of what is in there.
type format struct {
	prefix string
	latest uint32
}

// eventsFormat is that of events and snapshots.
func eventsFormat() format { return format{orderPrefix, formatVersion} }

// order is the bytewise order of keys. Its version is that of the format that
// the manifest says or, once another manifest is begun, is to say.
type order struct {
	prefix  string
	version atomic.Uint32
}

var _ comparer.Comparer = (*order)(nil)

func newOrder(f format, version uint32) *order {
	o := &order{prefix: f.prefix}
	o.version.Store(version)
	return o
}

// Compare implements comparer.Comparer.
func (*order) Compare(a, b []byte) int { return bytes.Compare(a, b) }

// Separator implements comparer.Comparer.
func (*order) Separator(dst, a, b []byte) []byte {
	return comparer.DefaultComparer.Separator(dst, a, b)
}

// Successor implements comparer.Comparer.
func (*order) Successor(dst, b []byte) []byte { return comparer.DefaultComparer.Successor(dst, b) }

// Name implements comparer.Comparer.
func (o *order) Name() string {
	return o.prefix + strconv.FormatUint(uint64(o.version.Load()), 10)
}

// checkOrder returns the version of the format of a database whose keys are
// ordered by the comparer of that name, or an error if this one can't read it.
func (f format) checkOrder(name string) (uint32, error) {
	version, ours := strings.CutPrefix(name, f.prefix)
	n, err := strconv.ParseUint(version, 10, 32)
	switch {
	case !ours || err != nil || n == 0:
		return 0, fmt.Errorf("%w: its keys are ordered by %q", ErrForeign, name)
	case n > uint64(f.latest):
		return 0, fmt.Errorf("%w: format %d, this one knows %d", journal.ErrNewerVersion, n, f.latest)
	}
	return uint32(n), nil
}

// handle is what the journal and the snapshot store have in common: each can be
// closed by itself.
type handle struct {
	mu     sync.RWMutex // shared: a call is in progress
	closed bool
	taken  bool // guarded by DB.handleMu
	// ended is closed together with the handle, for those who wait and are no
	// call in progress.
	ended chan struct{}
}

// enter reports whether the handle is open. If so, leave must be called.
func (h *handle) enter() bool {
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		return false
	}
	return true
}

func (h *handle) leave() { h.mu.RUnlock() }

// shut waits for the calls in progress and reports whether the handle was open.
func (h *handle) shut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.closed = true
	close(h.ended)
	return true
}

func (db *DB) take(h *handle) {
	db.handleMu.Lock()
	defer db.handleMu.Unlock()
	if !h.taken {
		h.taken = true
		db.handles++
	}
}

// drop closes a handle, and the database with the last one.
func (db *DB) drop(h *handle) error {
	if !h.shut() {
		return nil
	}
	db.handleMu.Lock()
	db.handles--
	last := db.handles == 0
	db.handleMu.Unlock()
	if last {
		return db.Close()
	}
	return nil
}
