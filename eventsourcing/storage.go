// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"reflect"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// storage is an open store.DB as the entities use it.
type storage struct {
	db        store.DB            // nil for none
	journal   journal.Journal     // with a circuit breaker unless it is immediate; nil for none
	snapshots snapshot.Store      // with a circuit breaker; nil for none
	writer    *groupcommit.Writer // nil without a journal
	local     bool                // an append does not wait for a network
}

// breakerOpen reports whether the circuit breaker around a journal or a snapshot store is open.
func breakerOpen(guarded any) bool {
	b, ok := guarded.(interface{ BreakerOpen() bool })
	return ok && b.BreakerOpen()
}

// openStorage puts circuit breakers around the journal and the snapshot store, and starts the writer.
func (r *Runtime) openStorage(db store.DB) (*storage, error) {
	s := &storage{db: db}
	if db == nil {
		return s, nil
	}
	journalBreaker, snapshotBreaker := r.cfg.JournalBreaker, r.cfg.SnapshotBreaker
	journalBreaker.OnChange = observeEach(r, journalBreaker.OnChange)
	snapshotBreaker.OnChange = observeEach(r, snapshotBreaker.OnChange)
	if saved := db.Snapshots(); saved != nil {
		guarded, err := snapshot.WithBreaker(saved, snapshotBreaker)
		if err != nil {
			return nil, err
		}
		s.snapshots = guarded
	}
	j := db.Journal()
	if j == nil {
		return s, nil
	}
	guarded, err := journal.WithBreaker(j, journalBreaker)
	if err != nil {
		return nil, err
	}
	s.journal = guarded
	wc := r.cfg.Writer
	wc.OnCommit = observeEach(r, r.cfg.Observer.Commit)
	local, ok := journal.As[snapshot.Local](j)
	s.local = ok && local.Local()
	s.writer, err = groupcommit.New(guarded, wc)
	return s, err
}

// storageFor returns the storage of a type: that of the runtime, or one that all types with the same
// HostOptions.Store share. The runtime is locked.
func (r *Runtime) storageFor(db store.DB) (*storage, error) {
	if db == nil {
		return r.storages[0], nil
	}
	for _, s := range r.storages {
		if s.db != nil && sameStore(s.db, db) {
			return s, nil
		}
	}
	s, err := r.openStorage(db)
	if err == nil {
		r.storages = append(r.storages, s)
	}
	return s, err
}

func sameStore(a, b store.DB) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// storageOf returns the storage of the type with this name: that of its host, or that of the runtime
// if the runtime does not host the type.
func (r *Runtime) storageOf(typeName string) *storage {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if h := r.hosts[typeName]; h != nil {
		return h.storage
	}
	return r.storages[0]
}
