// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package snapshot defines the store that keeps the states of entities, and has
// one that keeps them in files.
//
// A snapshot is the encoded state of one persistence ID after one of its
// events. Recovery loads the newest one that matches and replays only what
// follows it:
//
//	events     1 ── 2 ── 3 ── 4 ── 5 ── 6 ── 7
//	snapshots            3              6
//	recovery                            └─ load 6, replay 7
//
// It is an optimisation as long as the events are there: a snapshot that is
// missing or unreadable means a longer replay. Where events were deleted, the
// newest snapshot that covers them is the truth.
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
// [Store] is the SPI; package snapshottest checks that an implementation keeps
// its contract. The time in a snapshot's metadata is that of the last event it
// covers, not that of the save, so that "as of Monday" finds the same snapshot
// whenever it was taken.
//
// # The file store
//
// [Files] keeps each snapshot in a file of its own:
//
//	snapshots/
//	├── FORMAT                                        version of the layout
//	├── partial/                                      files being written
//	└── 3f/                                           IDs whose hash begins so
//	    └── account_42-3f0c…/                         one ID
//	        ├── 0000000000000000100.snapshot
//	        └── 0000000000000000200.snapshot
//
// A save writes to a partial file, makes it durable, gives it its name by an
// atomic rename, and makes the name durable. So a snapshot is there in one piece
// or not at all, through a crash, a power cut or a full disk at any moment; what
// an interrupted save leaves is removed when the directory is opened again. Each
// file has checksums and the full ID inside. A damaged file is passed over, and
// an older match is loaded instead.
//
// Caveats: it needs a file system that renames atomically and syncs
// directories, as those of POSIX systems do. The directory of an ID stays when
// its last snapshot is deleted. Several processes may use one directory at the
// same time; opening it makes a save that is going on elsewhere begin again.
//
// # A store that is down
//
// [Guard] stands in front of a store, gives each call a time limit, and stops
// calling for a while when one call after the other fails.
package snapshot
