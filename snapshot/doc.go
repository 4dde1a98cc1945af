// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package snapshot defines the store of entity states, and contains an implementation in files.
//
// A snapshot is the encoded state of one persistence ID after one of its events. Recovery loads the
// newest matching snapshot and replays only the later events:
//
//	events     1 ── 2 ── 3 ── 4 ── 5 ── 6 ── 7
//	snapshots            3              6
//	recovery                            └─ load 6, replay 7
//
// As long as the events exist, a snapshot is an optimization: a missing or unreadable snapshot only
// means a longer replay. After events were deleted, the newest snapshot that covers them is the
// only copy of the state.
//
//	store, err := snapshot.OpenFiles("snapshots", snapshot.FilesConfig{})
//	...
//	err = store.Save(ctx, snapshot.Snapshot{
//		Metadata: snapshot.Metadata{ID: "account|42", SequenceNr: 100, Time: last.Time},
//		Manifest: "account/v1",
//		Payload:  state,
//	})
//	newest, err := store.Load(ctx, "account|42", snapshot.Latest())
//
// [Store] is the interface for plugins; package snapshottest checks an implementation. The time in
// the metadata is the time of the last covered event, not the time of the save. A query for a point
// in time therefore does not depend on when the snapshot was taken.
//
// # The file store
//
// [Files] keeps each snapshot in a separate file:
//
//	snapshots/
//	├── FORMAT                                        version of the layout
//	├── partial/                                      files being written
//	└── 3f/                                           IDs whose hash has this prefix
//	    └── account_42-3f0c…/                         one ID
//	        ├── 0000000000000000100.snapshot
//	        └── 0000000000000000200.snapshot
//
// A save writes to a partial file, makes it durable, renames it atomically, and makes the rename
// durable. A snapshot therefore exists as a whole or not at all after a crash, a power failure or a
// full disk at any moment. OpenFiles removes the files of interrupted saves. Each file contains
// checksums and the full ID. Load skips a damaged file and returns an older match.
//
// Caveats: the file system must rename atomically and sync directories, as those of POSIX systems
// do. The directory of an ID remains after the deletion of its last snapshot. Several processes may
// use one directory at the same time; OpenFiles restarts saves that are in progress in other
// processes.
//
// # Unavailable stores
//
// [WithBreaker] adds a timeout to each call of a store, and stops calling the store for a while
// after consecutive failures.
package snapshot
