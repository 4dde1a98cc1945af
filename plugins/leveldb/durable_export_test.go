// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/ddata/durable"
)

// DurableOptions returns the options under which durable data is opened.
func DurableOptions() *opt.Options {
	o := Options()
	o.Comparer = newOrder(durableFormat())
	return o
}

// WithLogSize returns a DurableConfig with logs and tables of that size.
func (c DurableConfig) WithLogSize(n int) DurableConfig {
	c.db = c.db.WithLogSize(n)
	return c
}

// OpenDurable opens durable data in a storage that the test provides.
func OpenDurable(id durable.ID, files storage.Storage, syncDir func() error, cfg Config) (durable.Store, error) {
	cfg.format, cfg.tune = durableFormat(), tuneDurable(cfg.tune)
	db, err := OpenStorage(files, syncDir, cfg)
	if err != nil {
		return nil, durableError(err)
	}
	return newDurableStore(id, db), nil
}

// Compacted waits until a durable store has no background work.
func Compacted(tb testing.TB, s durable.Store) {
	tb.Helper()
	d, ok := s.(*durableStore)
	if !ok {
		tb.Fatalf("unexpected type %T", s)
	}
	d.background.Wait()
}

// Tables returns the number of tables that the database of a durable store uses. The engine removes
// other files soon.
func Tables(tb testing.TB, s durable.Store) int {
	tb.Helper()
	d, ok := s.(*durableStore)
	if !ok {
		tb.Fatalf("unexpected type %T", s)
	}
	tables, err := d.db.engine.db.GetProperty("leveldb.sstables")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Count(tables, "[")
}

// RecordKey returns the key of a durable record in the database.
func RecordKey(key string) []byte { return recordKey(nil, key) }

// EncodeRecord returns the value of a durable record in the database.
func EncodeRecord(r durable.Record) []byte { return appendRecord(nil, recordKey(nil, r.Key), r.Data) }

// DecodeRecord decodes a durable record, once unchanged and once with a corrected checksum.
func DecodeRecord(key, b []byte) (asIs, right durable.Record, err, rightErr error) {
	asIs, err = decodeRecord(key, b)
	if n := len(b) - 4; n >= 0 {
		b = binary.BigEndian.AppendUint32(slices.Clone(b[:n]), checksum(checksum(0, key), b[:n]))
	}
	right, rightErr = decodeRecord(key, b)
	return asIs, right, err, rightErr
}

// DirName and NameOfDir convert between names and directory names.
func DirName(name string) string { return dirName(name) }

func NameOfDir(dir string) (string, bool) { return nameOfDir(dir) }

// RawDurable opens the database of durable data without the durable store.
func RawDurable(tb testing.TB, dir string) *leveldb.DB {
	tb.Helper()
	db, err := leveldb.OpenFile(dir, DurableOptions())
	if err != nil {
		tb.Fatal(err)
	}
	return db
}
