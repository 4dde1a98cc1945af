// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// OpenStorage opens a database in a storage that the test provides.
func OpenStorage(files storage.Storage, syncDir func() error, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return open("storage", files, syncDir, cfg)
}

// WithLogSize returns a Config with logs and tables of that size.
func (c Config) WithLogSize(n int) Config {
	c.tune = func(o *opt.Options) { o.WriteBuffer, o.CompactionTableSize = n, n }
	return c
}

// WithTuning returns a Config with other options of the engine.
func (c Config) WithTuning(f func(*opt.Options)) Config {
	c.tune = f
	return c
}

// WithReopenPause returns a Config with that pause between attempts to open the database again.
func (c Config) WithReopenPause(d time.Duration) Config {
	c.reopenPause = d
	return c
}

// WithPortion returns a Config with n records per portion, for operations that read all records.
func (c Config) WithPortion(n int) Config {
	c.portion = n
	return c
}

// WithPart returns a Config that saves snapshots of more than n bytes in parts of n bytes.
func (c Config) WithPart(n int) Config {
	c.part = n
	return c
}

// Raw returns the engine's database.
func (db *DB) Raw() *leveldb.DB { return db.engine.db }

// Waiting returns the number of changes that wait for a batch.
func (db *DB) Waiting() int {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.engine == nil {
		return 0
	}
	w := &db.engine.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list)
}

// Replacing reports whether a call replaces the engine, or waits for other calls to replace or close it.
func (db *DB) Replacing() bool {
	if !db.mu.TryRLock() {
		return true
	}
	db.mu.RUnlock()
	return false
}

// SetOrder writes a database whose keys are ordered by a comparer of that name.
func SetOrder(dir, name string) error {
	o := Options()
	o.Comparer = named{o.Comparer, name}
	db, err := leveldb.OpenFile(dir, o)
	if err != nil {
		return err
	}
	return db.Close()
}

// MaxScanned is the number of steps that a page scans.
const MaxScanned = maxScanned

type named struct {
	comparer.Comparer
	name string
}

func (n named) Name() string { return n.name }

// Damage changes the last byte of a record of a stored snapshot: of its payload or of its head.
func (s *SnapshotStore) Damage(m snapshot.Metadata, payload bool) error {
	key := snapshotKey(tagSnapshot, m.ID, m.SequenceNr)
	value, err := get(s.db.engine.db, key)
	if err == nil && payload {
		head, _ := decodeHead(key, value)
		key = head.partKey(m.ID, m.SequenceNr, head.parts()-1)
		value, err = get(s.db.engine.db, key)
	}
	if err != nil {
		return err
	}
	if len(value) == 0 {
		return snapshot.ErrNotFound
	}
	value[len(value)-1] ^= 1
	return s.db.engine.db.Put(key, value, nil)
}

// CachedIDs returns the number of persistence IDs that the journal caches.
func (j *Journal) CachedIDs() int {
	c := j.db.engine.streams
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
}

// DecodeEvent decodes the value of an event.
func DecodeEvent(b []byte) (journal.Event, error) { return decodeEvent(b, new(stringPool)) }

// EncodeEvent is the inverse of DecodeEvent.
func EncodeEvent(e *journal.Event) []byte { return appendEvent(nil, e.Writer, e) }

// DecodeSnapshot corrects the checksum of the first record of a snapshot, decodes the record, and
// encodes it again.
func DecodeSnapshot(key, b []byte) (again []byte, err error) {
	if n := len(b) - snapshotChecksum; n > 0 {
		b = binary.BigEndian.AppendUint32(slices.Clone(b[:n]), checksum(checksum(0, key), b[:n]))
	}
	h, err := decodeHead(key, b)
	if err != nil {
		return nil, err
	}
	return h.append(nil, key), nil
}

// DecodeSmall decodes b as the value of an ID and as the value of a deletion.
func DecodeSmall(b []byte) (number uint64, deleted [2]uint64, err error) {
	number, err1 := decodeNumber(b)
	d, err2 := decodeDeletion(b)
	return number, [2]uint64{d.to, d.done}, errors.Join(err1, err2)
}

// LogRecords returns the whole records of a log, if it passes the check.
func LogRecords(b []byte) (records [][]byte, err error) {
	_, _, err = scanLog("log", bytes.NewReader(b), func(record []byte) error {
		records = append(records, bytes.Clone(record))
		return nil
	})
	return records, err
}

// CheckBatch checks b as a record of a log and as a record of a manifest.
func CheckBatch(b []byte) (batch, manifestErr error) {
	_, batch = checkBatch(b, 0)
	m := manifest{tables: make(map[int64]uint64)}
	return batch, m.add(b)
}

// CheckFooter checks the footer of a table.
func CheckFooter(b []byte) error { return checkFooter(footerReader{bytes.NewReader(b)}) }

type footerReader struct{ *bytes.Reader }

func (footerReader) Close() error { return nil }

// MakeNewer sets the version of an event and of the snapshot with the same number to one above the
// latest version.
func (db *DB) MakeNewer(id string, nr uint64) error {
	e := db.engine
	s, err := e.load(id)
	if err != nil {
		return err
	}
	key := appendEventKey(nil, s.number, nr)
	event, err := get(e.db, key)
	if err != nil {
		return err
	}
	event[0] = eventVersion + 1
	err = e.db.Put(key, event, nil)
	key = snapshotKey(tagSnapshot, id, nr)
	head, gerr := get(e.db, key)
	head[0], head[1] = snapshotVersion+1, ^byte(snapshotVersion+1)
	return errors.Join(err, gerr, e.db.Put(key, head, nil))
}

// RawEvents returns the number of event records of an ID, including those of deleted events.
func (db *DB) RawEvents(id string) (n int, err error) {
	e := db.engine
	s, err := e.load(id)
	if err != nil {
		return 0, err
	}
	it := e.db.NewIterator(&util.Range{Start: appendEventKey(nil, s.number, 0), Limit: appendEventKey(nil, s.number+1, 0)}, nil)
	defer it.Release()
	for it.Next() {
		n++
	}
	return n, it.Error()
}

// Run is a sequence of events of the order: the index in their group, the number of their
// persistence ID, the first sequence number, and the number of events.
type Run [4]uint64

// DecodeRuns decodes the value of a group or of a tag.
func DecodeRuns(b []byte, tag bool) (runs []Run, err error) {
	r := readRuns(b, tag)
	for r.next() {
		runs = append(runs, Run{r.run.index, r.run.number, r.run.first, r.run.count})
	}
	return runs, r.err
}

// EncodeRuns is the inverse of DecodeRuns.
func EncodeRuns(runs []Run, tag bool) []byte {
	b := []byte{valueVersion}
	behind := uint64(0)
	for _, n := range runs {
		r := run{index: n[0], number: n[1], first: n[2], count: n[3]}
		b = r.append(b, tag, behind)
		behind = r.end()
	}
	return b
}

// DecodeOffset returns the group and the index of an offset.
func DecodeOffset(o journal.Offset) (group, index uint64, err error) {
	p, err := parseOffset(o)
	return p.group, p.index, err
}

// EncodeOffset is the inverse of DecodeOffset.
func EncodeOffset(group, index uint64) journal.Offset { return position{group, index}.offset() }

// DecodeKeys decodes a key of a tag and the tags of an event, and encodes the key again if it is
// valid.
func DecodeKeys(b []byte) (again [][]byte) {
	if tag, group, ok := cutTagKey(b); ok {
		again = append(again, appendTagKey(nil, string(tag), group))
	}
	f := fields{rest: b}
	if tags := f.tags(new(stringPool)); !f.malformed {
		_ = appendTags(nil, tags)
	}
	_, _ = decodeName(b)
	return again
}

// GroupKey returns the key of a group of the index.
func GroupKey(group uint64) []byte           { return appendGroupKey(nil, group) }
func TagKey(tag string, group uint64) []byte { return appendTagKey(nil, tag, group) }
func NameKey(number uint64) []byte           { return appendNameKey(nil, number) }
func EventKey(number, seqNr uint64) []byte   { return appendEventKey(nil, number, seqNr) }
