// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package leveldb is the embedded journal and snapshot store. Both share one directory, are built
// on goleveldb, and need no setup. [Durable] stores the durable keys of replicated data, in
// separate directories.
//
//	db, err := leveldb.Open("bank-data", leveldb.Config{})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
//
// One process at a time can open a directory for writing; others get [ErrInUse]. While no process
// has it open for writing, any number of tools can open it with Config.ReadOnly.
//
// # Guarantees
//
// Data that Append, DeleteTo, Save and Delete have acknowledged is on disk and survives a power
// failure, unless Config.NoSync is set. A call of Append is one record of the log and one sync,
// regardless of its number of writes. Each write is stored completely or not at all. Deletions, and
// snapshots of up to 256 KiB, are stored together with the next append if one comes within 5 ms of
// the last one; they are acknowledged, or fail, with it.
//
// Damaged data is reported as [journal.ErrCorrupt] and never skipped. Open checks the manifest and
// the logs. Tables are checked block by block as they are read:
//
//	CURRENT ──▶ MANIFEST-000004 ──▶ 000005.ldb 000009.ldb ...   checked when read
//	                   │
//	                   └──────────▶ 000011.log ┌────┬────┬────┬────┬──┐
//	                                           │ ok │ ok │ ✗  │ ok │  │  corrupt: Open fails
//	                                           ├────┼────┼────┼────┼──┤
//	                                           │ ok │ ok │ ok │ ok │✗ │  torn by a power failure: the
//	                                           └────┴────┴────┴────┴──┘  rest was never acknowledged
//
// The format of keys and values has a version, in the manifest and in each value. Open rejects a
// directory of a newer format without changing it.
//
// # Queries
//
// The journal is a [journal.Querier]. The events of all persistence IDs are ordered by the time at
// which they were stored. The index of this order is written in the same batch as the events. It
// has one record for up to 4,096 events, with about 5 bytes per event. It also has one record for
// each tag of these events, with about 5 bytes per event with this tag. [DB.VerifyOrder] checks
// that the index is complete.
//
//	group 7    account|1 #4 #5    account|7 #1    account|2 #9 ...
//	red, 7     ┄┄┄┄┄┄┄┄┄┄┄┄ #5    account|7 #1
//
// Queries stop returning a deleted event immediately. Its index entry stays, and queries skip it
// without reading the event. DB.Compact removes the groups whose events are all deleted. A group
// with a single remaining event stays.
//
// # Failure handling
//
// After a failed write to a log the journal writes nothing more to it. It reopens the database
// without a restart of the process: with the next call that writes, or with the next call of any
// kind if the outcome of a write is unknown. When the disk is full, appends fail with an error that
// names the directory and matches journal.ErrNotSent. Reads continue, and writes succeed again as
// soon as there is space. The outcome of a write is unknown only if a sync has failed.
//
// While the database cannot be reopened, calls fail with journal.ErrUnavailable. The journal
// retries at most about twice a second.
//
// # Caveats
//
// Deleted events and snapshots occupy disk space until the engine compacts the tables that hold
// them, which happens gradually; see DB.Compact.
//
// With Config.NoSync a power failure may leave a log with a gap, which Open reports as corrupt. It
// may also lose events whose offsets a reader has stored. As long as the offset of such a reader is
// after the end, its queries fail with journal.ErrOffset. Once enough new events are stored, the
// reader misses events without an error.
//
// A snapshot of more than 256 KiB is written in parts of this size, so that an append waits at most
// for one part. If the process ends during the save, the parts occupy disk space until the next save
// of such a snapshot.
//
// The payloads of a page of Replay (500 events or 512 KiB) share memory.
//
// LevelDB keeps a log of 16 MiB in memory, or two while it flushes one, and caches 32 MiB of
// tables. Each table that is being written has a buffer of 64 KiB. A replay of a longer history
// holds two pages.
package leveldb
