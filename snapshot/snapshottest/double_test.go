// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest_test

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
)

// double is a correct store whose methods a test may replace. Its snapshots can be damaged.
type double struct {
	inner *inmem.SnapshotStore
	local bool

	mu      sync.Mutex
	damaged map[snapshot.Metadata]bool
	saved   []snapshot.Snapshot // in the order of the saves

	save   func(ctx context.Context, s snapshot.Snapshot) error
	load   func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error)
	list   func(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error]
	delete func(ctx context.Context, id string, c snapshot.Criteria) error
	close  func() error
}

func newDouble() *double {
	d := &double{inner: inmem.NewSnapshotStore(), damaged: make(map[snapshot.Metadata]bool)}
	d.save, d.load, d.list, d.delete, d.close = d.saveWell, d.loadWell, d.inner.List, d.inner.Delete, d.inner.Close
	return d
}

func (d *double) Save(ctx context.Context, s snapshot.Snapshot) error { return d.save(ctx, s) }

func (d *double) Load(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	return d.load(ctx, id, c)
}

func (d *double) List(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
	return d.list(ctx, id, c)
}

func (d *double) Delete(ctx context.Context, id string, c snapshot.Criteria) error {
	return d.delete(ctx, id, c)
}

func (d *double) Close() error { return d.close() }

func (d *double) Local() bool { return d.local }

func (d *double) saveWell(ctx context.Context, s snapshot.Snapshot) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.damaged, s.Metadata)
	d.saved = append(d.saved, s)
	return d.inner.Save(ctx, s)
}

func (d *double) isDamaged(m snapshot.Metadata) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.damaged[m]
}

func (d *double) damage(m snapshot.Metadata) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.damaged[m] = true
}

func (d *double) loadWell(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
	s, err := d.inner.Load(ctx, id, c)
	for err == nil && d.isDamaged(s.Metadata) {
		c.MaxSequenceNr = s.SequenceNr - 1
		if s, err = d.inner.Load(ctx, id, c); errors.Is(err, snapshot.ErrNotFound) {
			err = snapshot.ErrCorrupt
		}
	}
	return s, err
}

// widened replaces the criteria of every call.
func (d *double) widened(widen func(snapshot.Criteria) snapshot.Criteria) {
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		return d.inner.Load(ctx, id, widen(c))
	}
	d.list = func(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
		return d.inner.List(ctx, id, widen(c))
	}
	d.delete = func(ctx context.Context, id string, c snapshot.Criteria) error {
		return d.inner.Delete(ctx, id, widen(c))
	}
}

// renamed stores snapshots under another ID.
func (d *double) renamed(rename func(id string) string) {
	d.save = func(ctx context.Context, s snapshot.Snapshot) error {
		s.ID = rename(s.ID)
		return d.inner.Save(ctx, s)
	}
	d.load = func(ctx context.Context, id string, c snapshot.Criteria) (snapshot.Snapshot, error) {
		s, err := d.inner.Load(ctx, rename(id), c)
		s.ID = id
		return s, err
	}
	d.list = func(ctx context.Context, id string, c snapshot.Criteria) iter.Seq2[snapshot.Metadata, error] {
		return func(yield func(snapshot.Metadata, error) bool) {
			for m, err := range d.inner.List(ctx, rename(id), c) {
				m.ID = id
				if !yield(m, err) {
					return
				}
			}
		}
	}
	d.delete = func(ctx context.Context, id string, c snapshot.Criteria) error {
		return d.inner.Delete(ctx, rename(id), c)
	}
}

// changed changes saved snapshots.
func (d *double) changed(change func(s *snapshot.Snapshot)) {
	d.save = func(ctx context.Context, s snapshot.Snapshot) error {
		change(&s)
		return d.inner.Save(ctx, s)
	}
}
