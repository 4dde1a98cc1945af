// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import "github.com/refold-io/refold/store"

// Open returns an empty in-memory database: a journal and a snapshot store. It never fails; its
// error result matches the Open functions of other plugins.
func Open() (store.DB, error) { return store.Of(NewJournal(), NewSnapshotStore()), nil }
