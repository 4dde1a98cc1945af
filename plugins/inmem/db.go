// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import "github.com/refold-io/refold/store"

// Open returns an empty database in memory: a Journal and a SnapshotStore. It never fails; it returns
// an error so that it can be exchanged for the Open of another plugin.
func Open() (store.DB, error) { return store.Of(NewJournal(), NewSnapshotStore()), nil }
