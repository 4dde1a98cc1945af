// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"errors"
	"fmt"
	"sync/atomic"

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
	// nextNumber is the number of the next new persistence ID. Append takes it.
	nextNumber atomic.Uint64
}

// openEngine checks the files and opens them.
func openEngine(base storage.Storage, syncDir func() error, cfg Config) (*engine, error) {
	logs, err := check(base, cfg.ReadOnly)
	if err != nil {
		return nil, err
	}
	if !cfg.ReadOnly {
		if err = removeProbe(base); err != nil {
			return nil, err
		}
	}
	if cfg.ReadOnly && len(logs) > 1 {
		base = &readOnlyFiles{Storage: base, logs: logs}
	}
	o := Options()
	o.ReadOnly = cfg.ReadOnly
	if cfg.tune != nil {
		cfg.tune(o)
	}
	g := newGuard(base, syncDir)
	db, err := leveldb.Open(g, o)
	if err != nil {
		return nil, g.explain(err)
	}
	e := &engine{db: db, guard: g, sync: opt.WriteOptions{Sync: !cfg.NoSync}, streams: newCache(cfg.CachedIDs)}
	next, err := e.firstFreeNumber()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	e.nextNumber.Store(next)
	return e, nil
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
			return 0, &journal.CorruptError{File: "database", Offset: -1, Detail: fmt.Sprintf("malformed key %x", key)}
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
