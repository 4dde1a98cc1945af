// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
)

// DurableConfig configures durable data. The zero value is the default.
type DurableConfig struct {
	// ReadOnly opens stores for reading only. Nothing changes, and a missing store cannot be
	// opened. Defaults to false.
	ReadOnly bool

	db Config // for tests
}

// Durable stores the durable keys of replicators below a directory. It implements durable.Opener.
// Each store has its own directory, which one process at a time can open; others get
// durable.ErrInUse. See Dir.
//
// Data that Write has acknowledged survives a power failure. A call is one sync, or several if its
// records exceed 8 MiB. Each record has a checksum. Damaged logs and disk errors are handled as in
// a journal.
//
// The space of replaced and deleted records is freed in the background once it exceeds about 8 MiB
// and half of the remaining data. A store uses up to 8 MiB of memory.
type Durable struct {
	dir string
	cfg DurableConfig
}

var _ durable.Opener = (*Durable)(nil)

// NewDurable returns an opener of stores below a directory, which is created with the first store.
func NewDurable(dir string, cfg DurableConfig) *Durable { return &Durable{dir: dir, cfg: cfg} }

func durableFormat() format { return format{"refold.leveldb.durable/", 1} }

// Dir returns the directory of a store. The directory is named after the replicator and lies in a
// directory named after the node. Upper case letters, colons, and dots at the ends are escaped, so
// that the names are valid and distinct on any file system.
func (d *Durable) Dir(id durable.ID) string {
	return filepath.Join(d.dir, dirName(id.Node), dirName(id.Replicator))
}

// Open implements durable.Opener.
func (d *Durable) Open(ctx context.Context, id durable.ID) (s durable.Store, err error) {
	defer wrapDurable(&err, "open durable data %v", id)
	if err = id.Check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	dir := d.Dir(id)
	if err = checkContents(dir); err != nil {
		return nil, err
	}
	cfg := d.cfg.db
	cfg.ReadOnly = d.cfg.ReadOnly
	cfg.format, cfg.tune = durableFormat(), tuneDurable(cfg.tune)
	db, err := Open(dir, cfg)
	if err != nil {
		return nil, err
	}
	return newDurableStore(id, db), nil
}

// tuneDurable uses less memory than a journal: the records are small and are read once.
func tuneDurable(further func(*opt.Options)) func(*opt.Options) {
	return func(o *opt.Options) {
		o.WriteBuffer, o.CompactionTableSize, o.BlockCacheCapacity = 4<<20, 4<<20, 1<<20
		o.DisableSeeksCompaction = true
		if further != nil {
			further(o)
		}
	}
}

type durableStore struct {
	handle

	id durable.ID

	space      space
	compacting atomic.Bool
	closing    atomic.Bool
	background sync.WaitGroup
}

var _ durable.Store = (*durableStore)(nil)

func newDurableStore(id durable.ID, db *DB) *durableStore {
	s := &durableStore{handle: handle{open: plugin.NewHandle(), db: db}, id: id}
	s.space.live.Store(tableSize(db.engine))
	return s
}

// Close implements durable.Store.
func (s *durableStore) Close() error {
	s.closing.Store(true)
	s.open.Shut()
	s.background.Wait()
	err := s.db.Close()
	wrap(&err, "close durable data %v", s.id)
	return err
}

// wrapDurable converts an error and adds the operation to it. It is deferred.
func wrapDurable(err *error, operation string, args ...any) {
	*err = durableError(*err)
	wrap(err, operation, args...)
}

// durableError converts an error of the database to the errors of package durable.
func durableError(err error) error {
	for _, known := range []struct{ ours, theirs error }{
		{journal.ErrClosed, durable.ErrClosed},
		{journal.ErrCorrupt, durable.ErrCorrupt},
		{journal.ErrNewerVersion, durable.ErrVersion},
		{ErrForeign, durable.ErrForeign},
		{ErrInUse, durable.ErrInUse},
	} {
		if errors.Is(err, known.ours) && !errors.Is(err, known.theirs) {
			return fmt.Errorf("%w: %w", known.theirs, err)
		}
	}
	return err
}

var errReplaced = errors.New("database was reopened after a disk failure during the iteration")

// Load implements durable.Store. It reads a portion of records at a time and holds no lock while
// the loop body runs, so the body may call Write.
func (s *durableStore) Load(ctx context.Context) iter.Seq2[durable.Record, error] {
	return func(yield func(durable.Record, error) bool) {
		l := loader{store: s}
		defer func() {
			if l.view != nil {
				l.view.Release()
			}
		}()
		for {
			records, err := l.next(ctx)
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				wrapDurable(&err, "load durable data %v", s.id)
				yield(durable.Record{}, err)
				return
			}
			if len(records) == 0 {
				return
			}
		}
	}
}

// loader iterates over the records as of its beginning.
type loader struct {
	store *durableStore
	from  *engine
	view  *leveldb.Snapshot
	start []byte // nil at the beginning; the database holds only records
	live  int64  // bytes read so far, plus the bytes deleted before the beginning
}

// next returns the next records, or none at the end. The records before a damaged one are returned
// together with the error.
func (l *loader) next(ctx context.Context) (records []durable.Record, err error) {
	s := l.store
	e, err := s.use(ctx, false)
	if err != nil {
		return nil, err
	}
	defer s.release()
	if l.view == nil {
		if l.view, err = e.db.GetSnapshot(); err != nil {
			return nil, translate(err)
		}
		l.from, l.live = e, s.space.deleted.Load()
	}
	if l.from != e {
		return nil, errReplaced
	}
	last, err := e.portion(l.view, &util.Range{Start: l.start}, func(key, value []byte) error {
		r, damaged := decodeRecord(key, value)
		if damaged != nil {
			return damaged
		}
		r.Data = bytes.Clone(r.Data)
		records = append(records, r)
		l.live += int64(len(key) + len(value))
		return nil
	})
	l.start = append(last, 0)
	if err == nil && len(records) == 0 {
		s.space.live.Store(l.live)
		s.compactIfWasteful(e)
	}
	return records, err
}

// maxDurableBatch is the size at which a batch is written. A single record may be larger.
const maxDurableBatch = 8 << 20

// Write implements durable.Store.
func (s *durableStore) Write(ctx context.Context, records []durable.Record) (err error) {
	defer wrapDurable(&err, "write %d records of durable data %v", len(records), s.id)
	for _, r := range records {
		if err = r.Check(); err != nil {
			return err
		}
	}
	e, err := s.use(ctx, true)
	if err != nil {
		return err
	}
	defer s.release()
	var (
		b          leveldb.Batch
		key, value []byte
		deleted    int64
		written    int64
		size       int
	)
	for i, r := range records {
		key = recordKey(key[:0], r.Key)
		if len(r.Data) == 0 {
			old, err := get(e.db, key)
			if err != nil {
				return err
			}
			deleted += int64(len(key) + len(old))
			b.Delete(key)
		} else {
			value = appendRecord(value[:0], key, r.Data)
			b.Put(key, value)
			written += int64(len(key) + len(value))
		}
		size += len(key) + len(r.Data)
		if size < maxDurableBatch && i < len(records)-1 {
			continue
		}
		if err := e.write(&b); err != nil {
			return err
		}
		b.Reset()
		size = 0
	}
	if s.space.add(written, deleted) {
		s.compactIfWasteful(e)
	}
	return nil
}

// dirName returns the directory name for a name that identity.CheckName accepts: in lower case,
// with + for a colon and a comma for a dot at either end. If the name has upper case letters, a
// suffix follows: = and a bit set in hex, with one bit for each byte that was in upper case.
func dirName(name string) string {
	b := []byte(name)
	upper := make([]byte, (len(b)+7)/8)
	found := false
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
			upper[i/8] |= 0x80 >> (i % 8)
			found = true
		case c == ':':
			b[i] = '+'
		case c == '.' && (i == 0 || i == len(b)-1):
			b[i] = ','
		}
	}
	if found {
		return string(b) + "=" + hex.EncodeToString(upper)
	}
	return string(b)
}

// nameOfDir reverses dirName. It returns false if dirName cannot have produced the directory name.
func nameOfDir(dir string) (string, bool) {
	lower, bits, _ := strings.Cut(dir, "=")
	b := []byte(strings.NewReplacer("+", ":", ",", ".").Replace(lower))
	upper, err := hex.DecodeString(bits)
	if err != nil {
		return "", false
	}
	for i, c := range b {
		if i/8 < len(upper) && upper[i/8]&(0x80>>(i%8)) != 0 && 'a' <= c && c <= 'z' {
			b[i] = c - ('a' - 'A')
		}
	}
	name := string(b)
	return name, identity.CheckName(name) == nil && dirName(name) == dir
}

// IDs returns the IDs of all stores, in the order of their directories. It skips other directories
// and files, and does not check the contents of the stores.
func (d *Durable) IDs() ([]durable.ID, error) {
	nodes, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("leveldb: list durable data: %w", err)
	}
	var ids []durable.ID
	for _, n := range nodes {
		node, ok := nameOfDir(n.Name())
		if !ok || !n.IsDir() {
			continue
		}
		replicators, err := os.ReadDir(filepath.Join(d.dir, n.Name()))
		if err != nil {
			return nil, fmt.Errorf("leveldb: list durable data: %w", err)
		}
		for _, r := range replicators {
			if replicator, ok := nameOfDir(r.Name()); ok && r.IsDir() {
				ids = append(ids, durable.ID{Node: node, Replicator: replicator})
			}
		}
	}
	return ids, nil
}

// checkContents returns ErrForeign unless dir is a directory with only files of LevelDB.
func checkContents(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case err != nil:
		return err
	}
	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		switch {
		case e.IsDir():
		case ext == ".log", ext == ".ldb", ext == ".sst", ext == ".tmp", ext == ".bak":
			continue
		case name == "LOCK", name == "LOG", name == "LOG.old", strings.HasPrefix(name, "CURRENT"), strings.HasPrefix(name, "MANIFEST-"):
			continue
		}
		return fmt.Errorf("%w: found %q in %q", ErrForeign, name, dir)
	}
	return nil
}

// The key of a record is tagRecord and the key of the durable record. The value is:
//
//	version   1 byte, and once more with its bits inverted
//	data
//	checksum  4 bytes, CRC-32C of the key and of all above, big-endian
//
// The engine has its own checksums. This checksum also detects damage that occurred before the data
// reached the engine, and values that belong to another key.
const (
	tagRecord     = 'r'
	recordVersion = 1
	recordFixed   = 2 + 4
)

func recordKey(b []byte, key string) []byte { return append(append(b, tagRecord), key...) }

func appendRecord(b, key, data []byte) []byte {
	start := len(b)
	b = append(b, recordVersion, ^byte(recordVersion))
	b = append(b, data...)
	return binary.BigEndian.AppendUint32(b, checksum(checksum(0, key), b[start:]))
}

// decodeRecord decodes a record. The result refers to b.
func decodeRecord(key, b []byte) (durable.Record, error) {
	if len(key) == 0 || key[0] != tagRecord || len(key) == 1 || len(key) > 1+durable.MaxKey {
		return durable.Record{}, malformedKey(key)
	}
	r := durable.Record{Key: string(key[1:])}
	file := fmt.Sprintf("the record of %q", r.Key)
	if len(b) < 2 || b[0] != ^b[1] {
		return durable.Record{}, corrupt(file, errMalformed)
	}
	if b[0] != recordVersion {
		return durable.Record{}, corrupt(file, fmt.Errorf("%w: record version %d", journal.ErrNewerVersion, b[0]))
	}
	if len(b) <= recordFixed || len(b) > recordFixed+durable.MaxData {
		return durable.Record{}, corrupt(file, errMalformed)
	}
	body := b[:len(b)-4]
	if binary.BigEndian.Uint32(b[len(body):]) != checksum(checksum(0, key), body) {
		return durable.Record{}, corrupt(file, errChecksum)
	}
	r.Data = body[2:]
	return r, nil
}
