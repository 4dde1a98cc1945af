// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"
	"sync"

	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/refold-io/refold/ddata/durable"
)

const (
	// minGarbage is how many bytes of garbage do not matter.
	minGarbage = 8 << 20
	// lookAfter is after how many bytes that were written it is looked for garbage.
	lookAfter = 1 << 20
	// compactStep is how many bytes of live records are compacted at a time, about. Close
	// waits for that.
	compactStep = 16 << 20
)

// space is how many bytes there are. Most of it is estimated.
type space struct {
	mu sync.Mutex
	// live is how many bytes of the tables are no garbage, at least: when they were last
	// compacted or counted, without what was deleted since.
	live int64
	// deleted is how many bytes were ever deleted.
	deleted int64
	// written is how many bytes were written or deleted since it was looked for
	// garbage.
	written int64
}

// wrote notes what was done, and reports whether it should be looked for garbage.
func (s *space) wrote(written, deleted int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = max(0, s.live-deleted)
	s.deleted += deleted
	if s.written += written + deleted; s.written < lookAfter {
		return false
	}
	s.written = 0
	return true
}

// begin returns what counted needs to know of when the counting began.
func (s *space) begin() (deleted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deleted
}

// counted says how many bytes are live, but for what was deleted since it began.
func (s *space) counted(live, began int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = max(0, live-(s.deleted-began))
}

// wasted reports whether it is worth while to compact tables of that size.
func (s *space) wasted(size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return size-s.live > max(minGarbage, s.live/2)
}

// tidy compacts the store in the background if much of it is garbage. The engine does so by
// itself, but not before as much was written as makes a level full. A call must be in
// progress, which keeps Close waiting.
func (s *durableStore) tidy(e *engine) {
	if s.db.cfg.ReadOnly || !s.space.wasted(tableSize(e)) || s.compacting.Swap(true) {
		return
	}
	s.background.Go(func() {
		for again := true; again; {
			size, err := s.compact()
			s.compacting.Store(false)
			// What was deleted meanwhile has found that this goes on. After an error it is tried
			// again when more is written, which fails if the disk does.
			again = err == nil && s.space.wasted(size) && !s.compacting.Swap(true)
		}
	})
}

// tableSize returns how many bytes the tables have, about.
func tableSize(e *engine) int64 {
	sizes, err := e.db.SizeOf([]util.Range{{Start: []byte{tagRecord}, Limit: []byte{tagRecord + 1}}})
	if err != nil {
		return 0
	}
	return sizes.Sum()
}

// compact rewrites all tables, some at a time. It returns the size that they have then.
func (s *durableStore) compact() (size int64, err error) {
	began := s.space.begin()
	r := util.Range{Start: []byte{tagRecord}}
	for more := true; more; {
		if size, more, err = s.compactNext(&r); err != nil {
			return 0, err
		}
	}
	s.space.counted(size, began)
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

// compactSteps is into how many parts Compact divides the events.
const compactSteps = 16

// Compact frees the disk space of what was deleted, by rewriting all tables, and
// drops from the order of the events the groups of which none is left. It
// reads and writes about as much as is stored, and slows down appends
// meanwhile; the engine does the same by itself little by little. It looks at
// ctx between parts of the work.
func (db *DB) Compact(ctx context.Context) error {
	if err := db.compact(ctx); err != nil {
		return fmt.Errorf("leveldb: compact %q: %w", db.name, err)
	}
	return nil
}

func (db *DB) compact(ctx context.Context) error {
	if err := db.sweep(ctx); err != nil {
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

// compactRange compacts a range of keys. It returns the number that the next new
// persistence ID gets.
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
