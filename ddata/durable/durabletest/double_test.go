// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/ddata/durable/durabletest"
	"github.com/refold-io/refold/plugins/inmem"
)

var errDisk = errors.New("input/output error")

// bug replaces parts of a double. With nil fields the double is correct.
type bug struct {
	id     func(id durable.ID) durable.ID
	open   func(ctx context.Context, o *opener, id durable.ID) (durable.Store, error)
	load   func(ctx context.Context, s *store) iter.Seq2[durable.Record, error]
	write  func(ctx context.Context, s *store, records []durable.Record) error
	close  func(s *store) error
	broken func(ctx context.Context, s *store, records []durable.Record) error // Write while the disk fails
	crash  func(s *store) []durable.Record                                     // records that were not on disk
	never  bool                                                                // the store never reclaims space
	blind  bool                                                                // the store accepts invalid data
}

// opener opens stores in memory, with a bug.
type opener struct {
	durable.Opener

	bug  *bug
	mu   sync.Mutex
	open map[durable.ID]*store
	odd  map[durable.ID]error // the errors of Open
	bad  string               // key of a damaged record
}

// store is an open store.
type store struct {
	durable.Store

	o       *opener
	id      durable.ID
	closed  atomic.Bool
	failing atomic.Bool
	late    atomic.Int64 // counter for bugs
	mu      sync.Mutex
	total   int64             // bytes that were written
	kept    []durable.Record  // state of bugs
	slices  map[string][]byte // state of bugs
}

func (o *opener) Open(ctx context.Context, id durable.ID) (durable.Store, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.odd[id]; err != nil && !o.bug.blind {
		return nil, err
	}
	if o.bug.open != nil {
		return o.bug.open(ctx, o, id)
	}
	return o.sound(ctx, id)
}

func (o *opener) sound(ctx context.Context, id durable.ID) (durable.Store, error) {
	if o.bug.id != nil {
		id = o.bug.id(id)
	}
	s, err := o.Opener.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	o.open[id] = &store{Store: s, o: o, id: id}
	return o.open[id], nil
}

func (s *store) Load(ctx context.Context) iter.Seq2[durable.Record, error] {
	if s.o.bug.load != nil {
		return s.o.bug.load(ctx, s)
	}
	return func(yield func(durable.Record, error) bool) {
		for r, err := range s.Store.Load(ctx) {
			if err == nil && r.Key == s.o.bad {
				if s.o.bug.blind {
					continue
				}
				r, err = durable.Record{}, fmt.Errorf("%w: the record of %q", durable.ErrCorrupt, r.Key)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

func (s *store) Write(ctx context.Context, records []durable.Record) error {
	if s.failing.Load() {
		if s.o.bug.broken != nil {
			return s.o.bug.broken(ctx, s, records)
		}
		_ = s.Store.Write(ctx, records[:1])
		return errDisk
	}
	s.mu.Lock()
	for _, r := range records {
		s.total += int64(len(r.Data))
	}
	s.mu.Unlock()
	if s.o.bug.write != nil {
		return s.o.bug.write(ctx, s, records)
	}
	return s.Store.Write(ctx, records)
}

func (s *store) Close() error {
	s.closed.Store(true)
	if s.o.bug.close != nil {
		return s.o.bug.close(s)
	}
	return s.Store.Close()
}

// all returns the records of the correct store.
func (s *store) all(ctx context.Context) []durable.Record {
	var all []durable.Record
	for r, err := range s.Store.Load(ctx) {
		if err == nil {
			all = append(all, r)
		}
	}
	return all
}

func as[T any](tb testing.TB, v any) T {
	tb.Helper()
	t, ok := v.(T)
	if !ok {
		tb.Fatalf("got a value of type %T", v)
	}
	return t
}

func newOpener(b *bug) *opener {
	return &opener{Opener: new(inmem.Durable), bug: b, open: make(map[durable.ID]*store), odd: make(map[durable.ID]error)}
}

func config(b bug) durabletest.Config {
	odd := func(subject error) func(tb testing.TB, o durable.Opener, id durable.ID) {
		return func(tb testing.TB, o durable.Opener, id durable.ID) {
			tb.Helper()
			as[*opener](tb, o).odd[id] = fmt.Errorf("%w: injected", subject)
		}
	}
	return durabletest.Config{
		Open: func(testing.TB) durable.Opener { return newOpener(&b) },
		Crash: func(tb testing.TB, o durable.Opener) durable.Opener {
			tb.Helper()
			after := newOpener(&b)
			for id, s := range as[*opener](tb, o).open {
				copied, err := after.Opener.Open(tb.Context(), id)
				if err == nil {
					err = copied.Write(tb.Context(), s.all(tb.Context()))
				}
				if err == nil && b.crash != nil {
					err = copied.Write(tb.Context(), b.crash(s))
				}
				if err = errors.Join(err, copied.Close()); err != nil {
					tb.Fatal(err)
				}
			}
			return after
		},
		Size: func(tb testing.TB, o durable.Opener, s durable.Store) int64 {
			tb.Helper()
			if b.never {
				return as[*store](tb, s).total
			}
			size := int64(0)
			for _, r := range as[*store](tb, s).all(tb.Context()) {
				size += int64(len(r.Data))
			}
			return size
		},
		Damage: func(tb testing.TB, o durable.Opener, _ durable.ID, key string) {
			tb.Helper()
			as[*opener](tb, o).bad = key
		},
		Alter:   odd(durable.ErrVersion),
		Replace: odd(durable.ErrForeign),
		Fail: func(tb testing.TB, _ durable.Opener, s durable.Store) func() {
			tb.Helper()
			as[*store](tb, s).failing.Store(true)
			return func() { as[*store](tb, s).failing.Store(false) }
		},
	}
}

func TestCorrectStore(t *testing.T) {
	t.Parallel()
	durabletest.Run(t, config(bug{}))
}
