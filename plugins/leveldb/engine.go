// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
)

// engine is one open goleveldb database. After a failed write the engine is unusable for writing,
// and another engine on the same files replaces it; see storageGuard.
type engine struct {
	db    *leveldb.DB
	guard *storageGuard
	sync  opt.WriteOptions
	// outcomeUnknown is set once the outcome of a write is unknown.
	outcomeUnknown atomic.Bool
	streams        *cache
	names          *nameCache
	// turn holds an element while a call builds a batch and stores it with store. It guards the
	// batches and the state from which they are built.
	turn    chan struct{}
	waiting changes
	// shared is the batch of changes that no append takes along.
	shared leveldb.Batch
	// appended is the end of the last append, as the time since opened, or appending while an append
	// has the turn or waits for it.
	appended atomic.Int64
	opened   time.Time
	// nextNumber is the number of the next new persistence ID. Append increments it.
	nextNumber atomic.Uint64
	// nextGroup is the number of the next group. Only Append uses it.
	nextGroup uint64
	// records is the largest number of records in a portion.
	records int
}

// openEngine checks and opens the files.
func openEngine(base storage.Storage, syncDir func() error, cfg Config) (*engine, error) {
	logs, err := check(base, cfg.format, cfg.ReadOnly)
	switch {
	case err != nil:
		return nil, err
	case !cfg.ReadOnly:
		if err = removeSpaceFile(base); err != nil {
			return nil, err
		}
	case len(logs) > 1:
		base = &readOnlyFiles{Storage: base, logs: logs}
	}
	g := &storageGuard{Storage: base, syncDir: syncDir}
	o := Options()
	o.ReadOnly = cfg.ReadOnly
	o.Comparer = newOrder(cfg.format)
	if cfg.tune != nil {
		cfg.tune(o)
	}
	db, err := leveldb.Open(g, o)
	if err != nil {
		return nil, g.explain(err)
	}
	e := &engine{
		db: db, guard: g, sync: opt.WriteOptions{Sync: !cfg.NoSync}, records: cfg.portion,
		turn: make(chan struct{}, 1), opened: time.Now(),
		streams: &cache{capacity: cfg.CachedIDs, streams: make(map[string]*stream)},
		names:   &nameCache{capacity: max(cfg.CachedIDs, minNames), names: make(map[uint64]name)},
	}
	e.appended.Store(int64(-joinDelay))
	if cfg.format != eventsFormat() {
		return e, nil
	}
	if err := e.loadCounters(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return e, nil
}

func (e *engine) loadCounters() error {
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
	return nil
}

// usable reports whether the engine can be used for reading or for writing. After a failed write
// the engine can still be read and holds all acknowledged data, unless the outcome of a write is
// unknown.
func (e *engine) usable(writing bool) bool {
	return e.guard.err() == nil || !writing && !e.outcomeUnknown.Load()
}

// write stores a batch. After an error other than ErrNotSent, the outcome is unknown until a
// reopen.
func (e *engine) write(b *leveldb.Batch) error {
	began := e.guard.mark()
	err := e.db.Write(b, &e.sync)
	switch {
	case err == nil:
		return nil
	case e.guard.notStored(began, e.sync.Sync):
		return fmt.Errorf("%w: %w", journal.ErrNotSent, e.guard.explain(err))
	}
	e.outcomeUnknown.Store(true)
	return e.guard.explain(err)
}

// change is a change of a few records that shares a batch and its sync with others.
type change struct {
	// add adds the records to a batch, or nothing and returns an error. It sees the state after the
	// changes that are in the batch already. add and stored run on the goroutine that has the turn.
	add func(leveldb.BatchReplay) error
	// stored, if it is not nil, is called after the batch was stored.
	stored func()

	err  error
	done chan struct{} // closed when err is set
}

// settle ends the wait of the caller.
func (c *change) settle(err error) {
	c.err = err
	close(c.done)
}

// changes are the changes that wait for a batch.
type changes struct {
	mu   sync.Mutex
	list []*change
}

func (w *changes) push(c *change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, c)
}

func (w *changes) pop() *change {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) == 0 {
		return nil
	}
	c := w.list[0]
	w.list = slices.Delete(w.list, 0, 1)
	return c
}

// maxShared is the size of changes at which a batch takes no further ones along. The other limit is
// deletePage records. An append waits for about as much as one part of a large snapshot, or one page of
// a deletion.
const maxShared = snapshotPart

// joinDelay is the time after an append in which changes wait for the next append. A sync of their own
// would delay that append.
const joinDelay = 5 * time.Millisecond

// share stores a change. The batch of the next append takes it along. If no append comes, the first
// waiting change that gets the turn stores all that wait.
func (e *engine) share(c *change) error {
	c.done = make(chan struct{})
	e.waiting.push(c)
	for {
		var turn chan<- struct{}
		var later <-chan time.Time
		if quiet := e.quietIn(); quiet > 0 {
			later = time.After(quiet)
		} else {
			turn = e.turn
		}
		select {
		case <-c.done:
			return c.err
		case <-later:
		case turn <- struct{}{}:
			e.storeShared(c)
		}
	}
}

func (e *engine) storeShared(c *change) {
	defer func() { <-e.turn }()
	if e.quietIn() > 0 {
		return // an append waits for the turn, and takes changes along
	}
	select {
	case <-c.done: // the call that had the turn before has stored it
	default:
		e.shared.Reset()
		_ = e.store(&e.shared) // each change receives the error
	}
}

// beginAppend waits for the turn of a call of Append, which ends with endAppend. Changes that wait for
// the turn leave it to the append.
func (e *engine) beginAppend() {
	e.appended.Store(appending)
	e.turn <- struct{}{}
}

func (e *engine) endAppend() {
	e.appended.Store(int64(time.Since(e.opened)))
	<-e.turn
}

const appending = math.MaxInt64

// quietIn returns the time until the last append is joinDelay ago, or joinDelay while an append runs.
func (e *engine) quietIn() time.Duration {
	at := e.appended.Load()
	if at == appending {
		return joinDelay
	}
	return joinDelay - (time.Since(e.opened) - time.Duration(at))
}

var errInterrupted = errors.New("leveldb: write was interrupted")

// store stores a batch together with changes that wait. All have the same outcome. After an error the
// cache of streams is empty. The caller has the turn.
func (e *engine) store(b *leveldb.Batch) error {
	var members []*change
	err := errInterrupted
	defer func() {
		if err != nil {
			e.streams.clear() // they may be ahead of the database
		}
		for _, c := range members {
			if err == nil && c.stored != nil {
				c.stored()
			}
			c.settle(err)
		}
		e.streams.trim()
	}()
	for size, records := len(b.Dump())+maxShared, b.Len()+deletePage; len(b.Dump()) < size && b.Len() < records; {
		c := e.waiting.pop()
		if c == nil {
			break
		}
		members = append(members, c)
		if failed := c.add(b); failed != nil {
			members = members[:len(members)-1]
			c.settle(failed)
		}
	}
	if b.Len() == 0 {
		err = nil
	} else {
		err = e.write(b)
	}
	return err
}

// get returns the value of a key, or nil if the key does not exist.
func get(from leveldb.Reader, key []byte) ([]byte, error) {
	value, err := from.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return nil, nil
	}
	return value, translate(err)
}

// last returns the last key of a range, or nil if the range is empty.
func (e *engine) last(start, limit []byte) ([]byte, error) {
	it := e.db.NewIterator(&util.Range{Start: start, Limit: limit}, nil)
	defer it.Release()
	if !it.Last() {
		return nil, translate(it.Error())
	}
	return append([]byte(nil), it.Key()...), nil
}

// Limits of a portion: the records that are read at once.
const (
	portionRecords = maxGroup
	portionBytes   = 4 << 20
)

// portion calls f with the first records of a range. It returns the last of their keys, or nil.
func (e *engine) portion(from leveldb.Reader, r *util.Range, f func(key, value []byte) error) (last []byte, err error) {
	it := from.NewIterator(r, nil)
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

// firstFreeNumber returns the number of the next new persistence ID. Every ID with a number has an
// event or a deletion record.
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

// openFiles locks the directory. It creates the directory unless it is opened read-only. If only the
// file CURRENT is left of a database, the engine would create a new one.
func openFiles(dir string, readOnly bool) (storage.Storage, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: no directory", journal.ErrInvalid)
	}
	if !readOnly {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
	}
	files, err := storage.OpenFile(dir, readOnly)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, storage.ErrLocked) {
		return nil, fmt.Errorf("%w by this process or another one", ErrInUse)
	}
	if _, missing := os.Stat(filepath.Join(dir, "CURRENT")); err == nil && missing == nil {
		if manifests, failed := files.List(storage.TypeManifest); failed == nil && len(manifests) == 0 {
			return nil, errors.Join(corruptf("CURRENT", "its manifest is missing"), files.Close())
		}
	}
	return files, err
}

// makeDir creates a directory and its parents. Other users have no access to them, because the
// engine creates files that all users can read. It syncs each into its parent, so that a power
// failure cannot remove the directory of a journal.
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
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(above)
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot sync a directory
	}
	f, err := os.Open(dir) //nolint:gosec // the directory that the caller chose
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // some file systems cannot sync a directory
	}
	return errors.Join(err, f.Close())
}

// checkSpace returns an error unless the disk has space for the contents of the logs, which the
// engine writes to tables when it opens the database after a crash.
func checkSpace(files storage.Storage) (err error) {
	size, err := logSize(files)
	if err != nil {
		return err
	}
	w, err := files.Create(spaceFile())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(), files.Remove(spaceFile())) }()
	block := bytes.Repeat([]byte{1}, 256<<10) // a file system may not allocate space for zeros
	for size += 1 << 20; size > 0; size -= int64(len(block)) {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return w.Sync()
}

func spaceFile() storage.FileDesc { return storage.FileDesc{Type: storage.TypeTemp} }

// removeSpaceFile removes the file of an interrupted checkSpace.
func removeSpaceFile(files storage.Storage) error {
	if err := files.Remove(spaceFile()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
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
