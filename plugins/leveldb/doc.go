// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package leveldb is the embedded journal and snapshot store: both live in one
// directory, on goleveldb, and need no set-up.
//
//	db, err := leveldb.Open("bank-data", leveldb.Config{})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	rt, err := eventsourcing.Open(eventsourcing.Config{Journal: db.Journal(), Snapshots: db.Snapshots()})
package leveldb
