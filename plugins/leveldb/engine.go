// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// engine is one open goleveldb database. After a failed write it is of no more
// use and another one is opened on the same files; see guard.
type engine struct {
	db    *leveldb.DB
	guard *guard
	sync  opt.WriteOptions
	// unsure is set once the outcome of a write is unknown.
	unsure  atomic.Bool
	streams *cache
	names   *nameCache
	// nextNumber is the number of the next new persistence ID. Append takes it.
	nextNumber atomic.Uint64
	// nextGroup is the number of the next group. It belongs to Append.
	nextGroup uint64
	// ordered says that the events are in the order.
	ordered bool
	// records is how many of them a portion has at most.
	records int
}

// openEngine checks the files, upgrades and opens them.
func openEngine(base storage.Storage, syncDir func() error, cfg Config) (*engine, error) {
	f := cfg.format
	found, err := check(base, f, cfg.ReadOnly)
	if err != nil {
		return nil, err
	}
	if cfg.ReadOnly {
		if len(found.logs) > 1 {
			base = &readOnlyFiles{Storage: base, logs: found.logs}
		}
		return openChecked(newGuard(base, syncDir, f, found.version, found.version), cfg)
	}
	if err = removeProbe(base); err != nil {
		return nil, err
	}
	if f == eventsFormat() && found.version == unorderedVersion {
		if err = announceUpgrade(newGuard(base, syncDir, f, unorderedVersion, unorderedVersion), cfg); err != nil {
			return nil, err
		}
	}
	e, err := openChecked(newGuard(base, syncDir, f, found.version, f.latest), cfg)
	if err == nil && f == eventsFormat() && !e.ordered {
		if err = e.upgrade(); err != nil {
			return nil, errors.Join(err, e.close())
		}
	}
	return e, err
}

// openChecked opens files that were checked.
func openChecked(g *guard, cfg Config) (*engine, error) {
	o := Options()
	o.ReadOnly = cfg.ReadOnly
	o.Comparer = g.order
	if cfg.tune != nil {
		cfg.tune(o)
	}
	db, err := leveldb.Open(g, o)
	if err != nil {
		return nil, g.explain(err)
	}
	e := &engine{
		db: db, guard: g, sync: opt.WriteOptions{Sync: !cfg.NoSync},
		streams: newCache(cfg.CachedIDs), names: newNameCache(cfg.CachedIDs), records: cfg.portion,
	}
	if cfg.format != eventsFormat() {
		return e, nil
	}
	if err := e.look(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return e, nil
}

// look finds out where the numbers go on.
func (e *engine) look() error {
	next, err := e.firstFreeNumber()
	if err != nil {
		return err
	}
	e.nextNumber.Store(next)
	end, err := endOf(e.db)
	if err != nil {
		return err
	}
	e.nextGroup = end.group + 1
	step, err := e.upgradeStep()
	e.ordered = step == upgraded && e.guard.order.version.Load() != unorderedVersion
	return err
}

// usable reports whether the engine may be used for reading or for writing.
// After a failed write it holds what was acknowledged, and may be read as long as
// there is nothing that it doesn't know about.
func (e *engine) usable(writing bool) bool {
	return e.guard.err() == nil || !writing && !e.unsure.Load()
}

// write stores a batch. If it fails and the error is not ErrNotSent, nobody
// knows what is stored until the database has been opened anew.
func (e *engine) write(b *leveldb.Batch) error {
	began := e.guard.mark()
	err := e.db.Write(b, &e.sync)
	switch {
	case err == nil:
		return nil
	case e.guard.certain(began, e.sync.Sync):
		return fmt.Errorf("%w: %w", journal.ErrNotSent, e.guard.explain(err))
	}
	e.unsure.Store(true)
	return e.guard.explain(err)
}

// get returns the value of a key, nil if there is none.
func (e *engine) get(key []byte) ([]byte, error) {
	value, err := e.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return nil, nil
	}
	return value, translate(err)
}

// last returns the last key of a range, nil if there is none.
func (e *engine) last(start, limit []byte) ([]byte, error) {
	it := e.db.NewIterator(&util.Range{Start: start, Limit: limit}, nil)
	defer it.Release()
	if !it.Last() {
		return nil, translate(it.Error())
	}
	return append([]byte(nil), it.Key()...), nil
}

// A portion of records that are read at once.
const (
	portionRecords = maxGroup
	portionBytes   = 4 << 20
)

// portion calls f with the first records of a range and returns the last key
// that it has called it with, nil if there was none.
func (e *engine) portion(r *util.Range, f func(key, value []byte) error) (last []byte, err error) {
	it := e.db.NewIterator(r, nil)
	defer it.Release()
	size := 0
	for n := 0; n < e.records && size < portionBytes && it.Next(); n++ {
		if err := f(it.Key(), it.Value()); err != nil {
			return nil, err
		}
		size += len(it.Key()) + len(it.Value())
		last = append(last[:0], it.Key()...)
	}
	return last, translate(it.Error())
}

// firstFreeNumber returns the number that the next new persistence ID gets.
// Each ID that has a number has an event, or had all of them deleted.
func (e *engine) firstFreeNumber() (uint64, error) {
	var highest uint64
	for _, tag := range []byte{tagEvent, tagDeleted} {
		key, err := e.last([]byte{tag}, []byte{tag + 1})
		if err != nil {
			return 0, err
		}
		if key == nil {
			continue
		}
		number, ok := keyNumber(key)
		if !ok {
			return 0, malformedKey(key)
		}
		highest = max(highest, number)
	}
	return highest + 1, nil
}

// find reads what is stored of a persistence ID, but not the highest sequence
// number.
func (e *engine) find(id string) (stream, error) {
	var s stream
	value, err := e.get(appendIDKey(nil, id))
	if err != nil || value == nil {
		return s, err
	}
	if s.number, err = decodeNumber(value); err != nil {
		return s, corruptRecord("the number of ", id, err)
	}
	if value, err = e.get(appendDeletedKey(nil, s.number)); err != nil {
		return s, err
	}
	if value != nil {
		d, derr := decodeDeletion(value)
		if derr != nil {
			return s, corruptRecord("the deletions of ", id, derr)
		}
		s.deleted = d.to
	}
	return s, nil
}

// load reads what is stored of a persistence ID.
func (e *engine) load(id string) (stream, error) {
	s, err := e.find(id)
	if err != nil || s.number == 0 {
		return s, err
	}
	key, err := e.last(appendEventKey(nil, s.number, 0), behindEvents(nil, s.number, journal.MaxSequenceNr))
	if err != nil {
		return s, err
	}
	if key != nil {
		s.highest, _ = eventNumber(key)
	}
	s.highest = max(s.highest, s.deleted)
	return s, nil
}

func (e *engine) close() error { return e.db.Close() }

// corruptRecord wraps what is wrong with a record, unless it is only newer.
func corruptRecord(what, id string, err error) error {
	if errors.Is(err, journal.ErrNewerVersion) {
		return fmt.Errorf("%s%q: %w", what, id, err)
	}
	return &journal.CorruptError{File: fmt.Sprintf("%s%q", what, id), Offset: -1, Detail: err.Error()}
}

// openFiles locks the directory, after creating it unless it is only read.
func openFiles(dir string, readOnly bool) (storage.Storage, error) {
	if !readOnly {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
	}
	files, err := storage.OpenFile(dir, readOnly)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, storage.ErrLocked) {
		return nil, fmt.Errorf("%w by another process", ErrInUse)
	}
	return files, err
}

// makeDir creates a directory and those above it, each synced into the one
// above it: a journal must not vanish because its directory does.
func makeDir(dir string) error {
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil || !errors.Is(err, os.ErrNotExist):
		return err
	}
	above := filepath.Dir(dir)
	if above != dir {
		if err := makeDir(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(above)
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such thing
	}
	f, err := os.Open(dir) //nolint:gosec // the directory that the caller chose
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // a file system that can't sync a directory
	}
	return errors.Join(err, f.Close())
}

// probe returns an error unless there is space on the disk for what the engine
// writes when it opens the database after a crash: the contents of its logs.
func probe(files storage.Storage) (err error) {
	size, err := logSize(files)
	if err != nil {
		return err
	}
	w, err := files.Create(probeFile())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(), files.Remove(probeFile())) }()
	block := bytes.Repeat([]byte{1}, 256<<10) // a file system may not store zeros
	for size += 1 << 20; size > 0; size -= int64(len(block)) {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return w.Sync()
}

func probeFile() storage.FileDesc { return storage.FileDesc{Type: storage.TypeTemp} }

// removeProbe removes what a probe left that was cut short.
func removeProbe(files storage.Storage) error {
	err := files.Remove(probeFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func logSize(files storage.Storage) (int64, error) {
	logs, err := files.List(storage.TypeJournal)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, fd := range logs {
		r, err := files.Open(fd)
		if err != nil {
			return 0, err
		}
		size, err := r.Seek(0, io.SeekEnd)
		if err = errors.Join(err, r.Close()); err != nil {
			return 0, err
		}
		total += size
	}
	return total, nil
}
