// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

// TestJournal returns the journal with its concrete type, for tests of its optional interfaces.
func (db *DB) TestJournal() *Journal { return db.Journal().(*Journal) } //nolint:errcheck,forcetypeassert // it is one

// TestSnapshots returns the snapshot store with its concrete type.
func (db *DB) TestSnapshots() *SnapshotStore { return db.Snapshots().(*SnapshotStore) } //nolint:errcheck,forcetypeassert // it is one
