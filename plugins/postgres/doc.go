// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package postgres is the shared journal and snapshot store. Both live in one schema of a
// PostgreSQL database, version 13 or newer, which many nodes use concurrently.
//
//	db, err := postgres.Open(ctx, "postgres://bank@db.example.com/bank?sslmode=verify-full", postgres.Config{})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
//
// A call of Append is one statement and one round trip, regardless of its number of entities.
// Several calls are in flight on separate connections:
//
//	 node 1                                    PostgreSQL
//	┌────────────────────┐  append_many(...)  ┌───────────────────────────────────┐
//	│ groupcommit.Writer │ ─────────────────▶ │ events     (id, seq_nr)  ordinal  │
//	│                    │ ─────────────────▶ │ tags       (tag, ordinal)         │
//	│ recoveries         │ ◀──── pages ────── │ deletions  (id)                   │
//	│ queries            │ ◀── up to the ──── │ snapshots  (id, seq_nr)           │
//	└────────────────────┘     watermark      └───────────────────────────────────┘
//	 node 2 ... ─────── the primary key lets one of two writers win ─────▲
//
// # Guarantees
//
//   - Acknowledged data is as durable as the server makes it; see synchronous_commit below. Each
//     write is stored completely or not at all.
//   - Of two concurrent writers of one ID, on any nodes, one gets a conflict. Sequence numbers have
//     no gaps and are not reused after a deletion.
//   - The outcome of an append is stored, not stored or unknown, and is never guessed. The outcome
//     is not stored only if the server reported the failure or nothing was sent. The outcome is
//     unknown if the commit produced a warning, such as that of a canceled wait for a synchronous
//     standby. A conflict is reported only after a commit that waits for the standby.
//   - A query skips no event, even if the event commits late, and returns no event twice,
//     regardless of other transactions.
//   - Sessions hold no state unless Config.CachedStatements is set. A proxy that pools transactions
//     works; only NotifyDSN must bypass it.
//   - A pool of one connection is enough: no connection is held while a loop body runs.
//   - Errors contain no password.
//
// # Failure handling
//
// ErrUnavailable and ErrNotSent are errors of package journal.
//
//	no connection could be made         ErrUnavailable; an append is ErrNotSent
//	connection lost during an append    ErrUnavailable, outcome unknown: a fence settles it
//	context ended during an append      canceled by the server: ErrNotSent; no answer within 1 s: unknown
//	server is read-only                 ErrReadOnly; an append is ErrNotSent
//	server is a standby                 ErrReadOnly, also from Replay and queries: events may be missing
//	wait for a standby was canceled     outcome unknown
//	role lacks a right                  ErrDenied, ErrNotSent; names the role and the schema
//	disk of the server is full          ErrUnavailable, ErrNotSent; continues when there is space
//	tables are missing                  ErrSchema
//	schema is newer than the program    journal.ErrNewerVersion from Open
//	a page of the server is damaged     journal.ErrCorrupt
//
// The next call that needs a connection replaces a failed one. A connection that was idle for a
// second is checked before use.
//
// Config.Logger receives reports of conditions that no call returns as an error: lost
// notifications, an append that blocks queries, a slow server.
//
// docs/postgres.md describes the rights of roles, the settings of servers and proxies, several
// servers, and backups.
//
// # Caveats
//
//   - An append that waits for another transaction of the same ID delays all writes of its call.
//     Such a transaction is a single statement, so no client can leave it open.
//   - An append that hangs in the server blocks queries until it ends.
//   - MaxConns must be greater than MaxAppends. Otherwise recoveries wait for appends.
//   - The payloads of a page of Replay (1,000 events or 1 MiB) share memory.
//   - docs/decisions 0012 and 0017 to 0019 give the reasons for this design.
package postgres
