// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package leveldb is the embedded journal and snapshot store: both live in one
// directory, on goleveldb, and need no set-up. [Durable] keeps the durable keys of
// replicated data, in directories of its own.
//
//	db, err := leveldb.Open("bank-data", leveldb.Config{})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
//
// One process at a time has a directory open; the next one gets [ErrInUse]. Any
// number of tools may look at it meanwhile nobody writes, with Config.ReadOnly.
//
// # Guarantees
//
// What Append, DeleteTo, Save and Delete have acknowledged is on disk and
// survives a power cut, unless Config.NoSync says otherwise. A call of Append is
// one record of the log and one sync, however many writes it holds; each write
// is there as a whole or not at all.
//
// Stored data that is damaged is reported as [journal.ErrCorrupt] and never
// skipped. Open checks the manifest and the logs, and tables are checked block by
// block as they are read:
//
//	CURRENT ──▶ MANIFEST-000004 ──▶ 000005.ldb 000009.ldb ...   checked when read
//	                   │
//	                   └──────────▶ 000011.log ┌────┬────┬────┬────┬──┐
//	                                           │ ok │ ok │ ✗  │ ok │  │  corrupt: Open fails
//	                                           ├────┼────┼────┼────┼──┤
//	                                           │ ok │ ok │ ok │ ok │✗ │  torn by a power cut: the
//	                                           └────┴────┴────┴────┴──┘  rest was never acknowledged
//
// The format of keys and values is versioned, in the manifest and in each
// value. A directory that a newer version wrote is not touched.
//
// # Queries
//
// The journal is a [journal.Querier]. The order of the events of all persistence
// IDs is the one in which they were stored. It is written in the same batch as
// the events: a record for up to 4,096 of them, at about 5 bytes each, and
// one for each tag that they have, at about 5 bytes for each event with that
// tag. [DB.VerifyOrder] checks that it names all of them.
//
//	group 7    account|1 #4 #5    account|7 #1    account|2 #9 ...
//	red, 7     ┄┄┄┄┄┄┄┄┄┄┄┄ #5    account|7 #1
//
// What is deleted is gone from queries at once. Its places in the order stay, and
// a query passes them without reading anything, until DB.Compact drops the
// groups of which no event is left. A group with a single live event stays.
//
// # Older formats
//
// Format 1, of before there were queries, had no order. Open gives it one, by the
// time of the events, then by persistence ID in the order in which they were
// first written. It reads all events twice or so, and takes up to 60 bytes of
// disk space for each meanwhile. If it is cut short, the next Open goes on; older
// versions of Refold refuse the directory from then on. Opened with
// Config.ReadOnly, such a directory is read as it is, and queries fail with
// [ErrNoOrder].
//
// # Failures
//
// After a write to a log has failed, nothing is written behind it. The journal
// opens its database anew, without a restart of the process: at the next call
// that writes, or at the next call of any kind if the outcome of a write is
// unknown. So when the disk is full, appends are answered with an error that
// names the directory and says that they are not stored (journal.ErrNotSent),
// reading goes on, and writing does as soon as there is space again. An
// outcome is unknown only if a sync has failed.
//
// While the database can't be opened again, calls fail with
// journal.ErrUnavailable; it is tried about twice a second at most.
//
// # Caveats
//
// Deleting events and snapshots frees disk space only when the engine compacts
// the tables that held them, little by little; see DB.Compact.
//
// With Config.NoSync a power cut may leave a log with a hole in it, which Open
// reports as corrupt. It may lose events whose offsets a reader has kept: a query
// behind the end fails with journal.ErrOffset, but one that comes after as much
// was stored again misses that.
//
// The payloads that a page of Replay yields (1,000 events or 1 MiB) share
// memory.
//
// LevelDB holds a log of 16 MiB in memory, up to two while it flushes one, and
// caches 32 MiB of tables.
package leveldb
