// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"sync/atomic"

	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/ddata/durable"
)

const (
	// minGarbage is the number of bytes of garbage that is tolerated.
	minGarbage = 8 << 20
	// checkAfter is the number of written bytes after which the store checks for garbage.
	checkAfter = 1 << 20
	// compactStep is the approximate number of bytes of live records that are compacted at a time.
	// Close waits for one step.
	compactStep = 16 << 20
)

// space estimates the use of disk space. All sizes are in bytes.
type space struct {
	// live was set by the last count or compaction. It is the sum of a lower bound of the live data
	// in the tables and of the value that deleted had when the count or compaction began.
	live atomic.Int64
	// deleted is the total of all deletions.
	deleted atomic.Int64
	// written is the total of writes and deletions since the last check for garbage.
	written atomic.Int64
}

// add records writes and deletions, and reports whether it is time to check for garbage.
func (s *space) add(written, deleted int64) bool {
	s.deleted.Add(deleted)
	if s.written.Add(written+deleted) < checkAfter {
		return false
	}
	s.written.Store(0)
	return true
}

// wasteful reports whether tables of that size are worth compacting.
func (s *space) wasteful(size int64) bool {
	live := max(0, s.live.Load()-s.deleted.Load())
	return size-live > max(minGarbage, live/2)
}

// compactIfWasteful compacts the store in the background if much of it is garbage. The engine
// compacts too, but only when a level is full. The caller must be inside a call of the store, so
// that Close has not begun to wait for background work.
func (s *durableStore) compactIfWasteful(e *engine) {
	if s.db.cfg.ReadOnly || !s.space.wasteful(tableSize(e)) || s.compacting.Swap(true) {
		return
	}
	s.background.Go(func() {
		for again := true; again; {
			size, err := s.compact()
			s.compacting.Store(false)
			// Deletions during the compaction did not start another compaction, so check again.
			// After an error the next writes retry the compaction.
			again = err == nil && s.space.wasteful(size) && !s.compacting.Swap(true)
		}
	})
}

func tableSize(e *engine) int64 {
	sizes, err := e.db.SizeOf([]util.Range{{Start: []byte{tagRecord}, Limit: []byte{tagRecord + 1}}})
	if err != nil {
		return 0
	}
	return sizes.Sum()
}

// compact rewrites all tables in steps and returns their new size.
func (s *durableStore) compact() (size int64, err error) {
	deleted := s.space.deleted.Load()
	r := util.Range{Start: []byte{tagRecord}}
	for more := true; more; {
		if size, more, err = s.compactNext(&r); err != nil {
			return 0, err
		}
	}
	s.space.live.Store(size + deleted)
	return size, nil
}

func (s *durableStore) compactNext(r *util.Range) (size int64, more bool, err error) {
	if s.closing.Load() {
		return 0, false, durable.ErrClosed
	}
	e, err := s.db.acquire(true)
	if err != nil {
		return 0, false, err
	}
	defer s.db.release()
	r.Limit = []byte{tagRecord + 1}
	it := e.db.NewIterator(r, nil)
	for n := 0; it.Next(); {
		if n += len(it.Key()) + len(it.Value()); n >= compactStep {
			r.Limit, more = append(append([]byte(nil), it.Key()...), 0), true
			break
		}
	}
	it.Release()
	if err := it.Error(); err != nil {
		return 0, false, translate(err)
	}
	if err := e.db.CompactRange(*r); err != nil {
		return 0, false, e.guard.explain(err)
	}
	r.Start = r.Limit
	return tableSize(e), more, nil
}

// compactSteps is the number of ranges into which Compact divides the events.
const compactSteps = 16

// Compact frees the disk space of deleted data by rewriting all tables, and removes the index
// groups whose events are all deleted. Compact reads and writes about as much data as is stored,
// and slows down concurrent appends. Without Compact, the engine frees the space gradually. It
// checks ctx between ranges.
func (db *DB) Compact(ctx context.Context) (err error) {
	defer wrap(&err, "compact %q", db.name)
	if err = db.sweep(ctx); err != nil {
		return err
	}
	next, err := db.compactRange(ctx, util.Range{Limit: []byte{tagEvent}})
	if err != nil {
		return err
	}
	step := next/compactSteps + 1
	for number := uint64(0); number < next; number += step {
		r := util.Range{Start: appendEventKey(nil, number, 0), Limit: appendEventKey(nil, number+step, 0)}
		if _, err = db.compactRange(ctx, r); err != nil {
			return err
		}
	}
	_, err = db.compactRange(ctx, util.Range{Start: []byte{tagEvent + 1}})
	return err
}

// compactRange compacts a range of keys. It returns the number of the next new persistence ID.
func (db *DB) compactRange(ctx context.Context, r util.Range) (next uint64, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	e, err := db.acquire(true)
	if err != nil {
		return 0, err
	}
	defer db.release()
	if err := e.db.CompactRange(r); err != nil {
		return 0, e.guard.explain(err)
	}
	return e.nextNumber.Load(), nil
}
