// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package postgres is the shared journal and snapshot store. Both live in one schema of a
// PostgreSQL database, version 13 or newer, which many nodes use concurrently.
//
//	db, err := postgres.Open(ctx, "postgres://bank@db.example.com/bank", postgres.Config{})
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
// # For administrators
//
// Rights: migrations need CREATE on the database, or ownership of the schema. With Config.CheckOnly
// the program needs only
//
//	GRANT USAGE ON SCHEMA refold TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA refold TO app;
//	GRANT SELECT, USAGE ON SEQUENCE refold.ordinals TO app;
//
// and EXECUTE on the functions and on pg_logical_emit_message, which PUBLIC has unless it was
// revoked. No other role may own the schema refold or have CREATE on it, because its owner can
// replace the functions. Other roles may have CREATE on other schemas, such as public: each session
// and each function has the search path "pg_catalog, pg_temp", so their operators and functions are
// not used. Triggers on the tables therefore need qualified names. A trigger that raises a warning
// makes the outcome of the append unknown.
//
// The files in plugins/postgres/migration are plain SQL and can be run manually, with the same
// search path:
//
//	PGOPTIONS='-c search_path=pg_catalog,pg_temp' psql -v ON_ERROR_STOP=1 --single-transaction -f 001_journal.up.sql
//
// The encoding of the database must be UTF8. Each connection sets client_encoding to UTF8,
// search_path to "pg_catalog, pg_temp" and client_min_messages to warning at its start, regardless
// of the settings of roles and databases. A proxy that pools transactions must track
// client_encoding, as PgBouncer does. It may drop the others (ignore_startup_parameters =
// search_path, client_min_messages) if the role has the search path: ALTER ROLE app SET search_path
// = pg_catalog, pg_temp. Open fails with ErrSchema if a session has other settings.
//
// Servers: a connection string with several hosts selects the primary. After a fail-over, the
// journal refuses a server that has become a standby.
//
// Settings: synchronous_commit is not changed; off may lose the last appends in a crash. The
// transaction isolation must be read committed, the default. Config.MaxConns counts against
// max_connections, and one more connection listens.
//
// Vacuum: only deletions and replaced snapshots leave dead rows. The table of events is configured
// to be vacuumed and analyzed often, in small steps. Space of deleted events is reused, and not
// returned to the disk.
//
// Partitions: events may be partitioned by hash of the ID, but not by time.
//
// Backup and restore: pg_dump and physical backups are complete. After a restore, or after a
// fail-over to a standby that lacks the last commits, acknowledged events may be missing. Entities
// in memory then get a conflict and recover from the stored events; readers get ErrRewound or
// journal.ErrOffset where the loss can be detected. Never restore the tables without the sequence;
// such a restore is detected and rejected.
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
