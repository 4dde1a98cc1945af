// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/refold-io/refold/ddata/durable"
)

// Durable keeps the durable keys of replicators in memory. All replicators that use one value share
// it like a disk. It implements durable.Opener.
type Durable struct {
	mu     sync.Mutex
	stores map[durable.ID]*durableDisk
}

var _ durable.Opener = (*Durable)(nil)

// durableDisk holds the data that remains after a store is closed.
type durableDisk struct {
	inUse   bool // guarded by Durable.mu
	mu      sync.Mutex
	records map[string][]byte // the slices are never modified
}

// Open implements durable.Opener.
func (d *Durable) Open(ctx context.Context, id durable.ID) (durable.Store, error) {
	if err := id.Check(); err != nil {
		return nil, fmt.Errorf("inmem: open the durable data: %w", err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("inmem: open the durable data %v: %w", id, context.Cause(ctx))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	disk := d.stores[id]
	if disk == nil {
		disk = &durableDisk{records: make(map[string][]byte)}
		if d.stores == nil {
			d.stores = make(map[durable.ID]*durableDisk)
		}
		d.stores[id] = disk
	}
	if disk.inUse {
		return nil, fmt.Errorf("inmem: open the durable data %v: %w", id, durable.ErrInUse)
	}
	disk.inUse = true
	return &durableStore{durable: d, disk: disk, id: id}, nil
}

type durableStore struct {
	durable *Durable
	disk    *durableDisk
	id      durable.ID
	closed  bool // guarded by durableDisk.mu
}

// Load implements durable.Store.
func (s *durableStore) Load(ctx context.Context) iter.Seq2[durable.Record, error] {
	return func(yield func(durable.Record, error) bool) {
		records, err := s.view()
		for _, key := range slices.Sorted(maps.Keys(records)) {
			if err = context.Cause(ctx); err != nil {
				break
			}
			if !yield(durable.Record{Key: key, Data: bytes.Clone(records[key])}, nil) {
				return
			}
		}
		err = cmp.Or(err, context.Cause(ctx))
		if err != nil {
			yield(durable.Record{}, fmt.Errorf("inmem: load the durable data %v: %w", s.id, err))
		}
	}
}

func (s *durableStore) view() (map[string][]byte, error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.closed {
		return nil, durable.ErrClosed
	}
	return maps.Clone(s.disk.records), nil
}

// Write implements durable.Store.
func (s *durableStore) Write(ctx context.Context, records []durable.Record) error {
	if err := s.write(ctx, records); err != nil {
		return fmt.Errorf("inmem: write %d records of the durable data %v: %w", len(records), s.id, err)
	}
	return nil
}

func (s *durableStore) write(ctx context.Context, records []durable.Record) error {
	for _, r := range records {
		if err := r.Check(); err != nil {
			return err
		}
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.closed {
		return durable.ErrClosed
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, r := range records {
		if len(r.Data) == 0 {
			delete(s.disk.records, r.Key)
		} else {
			s.disk.records[r.Key] = bytes.Clone(r.Data)
		}
	}
	return nil
}

// Close implements durable.Store.
func (s *durableStore) Close() error {
	s.durable.mu.Lock()
	defer s.durable.mu.Unlock()
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if !s.closed {
		s.closed, s.disk.inUse = true, false
	}
	return nil
}
