// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/opt"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/ddata/durable/durabletest"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/plugins/leveldb"
)

func asDurable(tb testing.TB, o durable.Opener) *leveldb.Durable {
	tb.Helper()
	d, ok := o.(*leveldb.Durable)
	if !ok {
		tb.Fatalf("unexpected type %T", o)
	}
	return d
}

// sizeOf returns the number of tables in a directory, and the total size of its files in bytes.
func sizeOf(tb testing.TB, dir string) (tables int, size int64) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed after the directory was listed
		case err != nil:
			tb.Fatal(err)
		default:
			size += info.Size()
			if filepath.Ext(e.Name()) == ".ldb" {
				tables++
			}
		}
	}
	return tables, size
}

func TestDurableConformance(t *testing.T) {
	t.Parallel()
	durabletest.Run(t, durabletest.Config{
		Limit: patience,
		Open: func(tb testing.TB) durable.Opener {
			tb.Helper()
			return leveldb.NewDurable(tb.TempDir(), leveldb.DurableConfig{}.WithLogSize(2<<20))
		},
		Size: func(tb testing.TB, o durable.Opener, s durable.Store) int64 {
			tb.Helper()
			leveldb.Compacted(tb, s)
			for {
				tables, size := sizeOf(tb, asDurable(tb, o).Dir(durableID()))
				if tables == leveldb.Tables(tb, s) {
					return size
				}
				runtime.Gosched()
			}
		},
		Damage: func(tb testing.TB, o durable.Opener, id durable.ID, key string) {
			tb.Helper()
			db := leveldb.RawDurable(tb, asDurable(tb, o).Dir(id))
			defer db.Close() //nolint:errcheck // the next open finds an error
			value, err := db.Get(leveldb.RecordKey(key), nil)
			if err != nil {
				tb.Fatal(err)
			}
			value[len(value)/2] ^= 1
			if err := db.Put(leveldb.RecordKey(key), value, nil); err != nil {
				tb.Fatal(err)
			}
		},
		Alter: func(tb testing.TB, o durable.Opener, id durable.ID) {
			tb.Helper()
			dir := asDurable(tb, o).Dir(id)
			if err := os.RemoveAll(dir); err != nil {
				tb.Fatal(err)
			}
			if err := leveldb.SetOrder(dir, "refold.leveldb.durable/2"); err != nil {
				tb.Fatal(err)
			}
		},
		Replace: func(tb testing.TB, o durable.Opener, id durable.ID) {
			tb.Helper()
			if err := leveldb.SetOrder(asDurable(tb, o).Dir(id), "refold.leveldb/2"); err != nil { // a journal
				tb.Fatal(err)
			}
		},
	})
}

// diskOpener opens stores on disks in memory.
type diskOpener struct {
	mu    sync.Mutex
	disks map[durable.ID]*disk
	inUse map[durable.ID]bool
}

func newDiskOpener() *diskOpener {
	return &diskOpener{disks: make(map[durable.ID]*disk), inUse: make(map[durable.ID]bool)}
}

func (o *diskOpener) Open(ctx context.Context, id durable.ID) (durable.Store, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := id.Check(); err != nil {
		return nil, err
	}
	d := o.disks[id]
	if d == nil {
		d = newDisk(faultTear, 0, 1)
		o.disks[id] = d
	}
	if o.inUse[id] {
		return nil, durable.ErrInUse
	}
	s, err := leveldb.OpenDurable(id, d, d.syncDir, smallDurable())
	if err != nil {
		return nil, err
	}
	o.inUse[id] = true
	return &diskStore{Store: s, o: o, id: id}, nil
}

type diskStore struct {
	durable.Store

	o    *diskOpener
	id   durable.ID
	once sync.Once
}

func (s *diskStore) Close() error {
	err := s.Store.Close()
	s.once.Do(func() {
		s.o.mu.Lock()
		defer s.o.mu.Unlock()
		s.o.inUse[s.id] = false
	})
	return err
}

// smallDurable returns a Config with logs that are flushed occasionally. See small about the race
// detector.
func smallDurable() leveldb.Config {
	return leveldb.Config{}.WithReopenPause(time.Nanosecond).WithTuning(func(o *opt.Options) {
		o.WriteBuffer, o.CompactionTableSize = 64<<10, 64<<10
		if effort.Race() {
			o.WriteBuffer = 8 << 20
		}
	})
}

// TestDurableCrash runs the suite with a power cut for each crash, and with disks that are
// sometimes full.
func TestDurableCrash(t *testing.T) {
	t.Parallel()
	asDisks := func(tb testing.TB, o durable.Opener) *diskOpener {
		tb.Helper()
		d, ok := o.(*diskOpener)
		if !ok {
			tb.Fatalf("unexpected type %T", o)
		}
		return d
	}
	durabletest.Run(t, durabletest.Config{
		Limit: patience,
		Open:  func(testing.TB) durable.Opener { return newDiskOpener() },
		Crash: func(tb testing.TB, o durable.Opener) durable.Opener {
			tb.Helper()
			after := newDiskOpener()
			for id, d := range asDisks(tb, o).disks {
				after.disks[id] = d.afterCut()
			}
			return after
		},
		Fail: func(tb testing.TB, o durable.Opener, _ durable.Store) func() {
			tb.Helper()
			d := asDisks(tb, o).disks[durableID()]
			d.setFull(true)
			return func() { d.setFull(false) }
		},
	})
}
