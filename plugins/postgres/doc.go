// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package postgres is the shared journal and snapshot store: both live in one
// schema of a PostgreSQL database, version 13 or newer, that many nodes use at
// the same time.
//
//	db, err := postgres.Open(ctx, "postgres://bank@db.example.com/bank", postgres.Config{})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
//
// What a call of Append holds, of however many entities, is one statement and
// one round trip. Several are in flight, on connections of their own:
//
//	 node 1                                    PostgreSQL
//	┌────────────────┐   append_many(...)     ┌───────────────────────────────────┐
//	│ groupcommit.Writer │ ─────────────────────▶ │ events     (id, seq_nr)  ordinal  │
//	│                │ ─────────────────────▶ │ tags       (tag, ordinal)         │
//	│ recoveries     │ ◀───── pages ───────── │ deletions  (id)                   │
//	│ queries        │ ◀─── up to the ─────── │ snapshots  (id, seq_nr)           │
//	└────────────────┘      watermark         └───────────────────────────────────┘
//	 node 2 ... ─────── the primary key lets one of two writers win ─────▲
//
// # Guarantees
//
//   - What was acknowledged is as durable as the server makes it; see
//     synchronous_commit below. Each write is there as a whole or not at all.
//   - Of two writers of one ID, on whatever nodes, one gets a conflict. Numbers
//     have no gaps, and are not used again after a deletion.
//   - The outcome of an append is stored, not stored or unknown, and never a guess:
//     not stored only if the server said so or nothing was sent.
//   - A query skips no event that commits late and shows none twice, whatever
//     else goes on in the server.
//   - Nothing is kept in a session, unless Config.CachedStatements says otherwise. So a proxy
//     that pools transactions may stand between; only NotifyDSN has to lead past it.
//   - A pool of one connection is enough: none is held while the body of a loop
//     runs.
//   - No error holds a password.
//
// # Failures
//
// ErrUnavailable and ErrNotSent are those of package journal.
//
//	no connection could be made         ErrUnavailable; an append is ErrNotSent
//	connection lost during an append    ErrUnavailable, outcome unknown: a fence settles it
//	context ended during an append      canceled by the server: ErrNotSent; no answer within 1 s: unknown
//	server is read-only, a standby      ErrReadOnly, ErrNotSent
//	role lacks a right                  ErrDenied, ErrNotSent; names the role and the schema
//	disk of the server is full          ErrUnavailable, ErrNotSent; goes on when there is space
//	tables are missing                  ErrSchema
//	schema is newer than the program    journal.ErrNewerVersion, when it is opened
//	a page of the server is damaged     journal.ErrCorrupt
//
// A connection that has failed is replaced by the next call that needs one. One that was idle
// for a second is probed first.
//
// Config.Logger is told of what no caller sees: notifications that are lost, an
// append that holds queries back, a server that is slow.
//
// # For the administrator
//
// Rights: who migrates needs CREATE on the database, or owns the schema. With
// Config.CheckOnly the program needs no more than
//
//	GRANT USAGE ON SCHEMA refold TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA refold TO app;
//	GRANT SELECT, USAGE ON SEQUENCE refold.ordinals TO app;
//
// and EXECUTE on the functions, which everybody has unless it was revoked. The
// files in plugins/postgres/migration are plain SQL that can be run by hand.
//
// The database has to have the encoding UTF8. Each connection asks for
// client_encoding UTF8 when it begins, whatever roles and databases are set to; a
// proxy that pools transactions has to track that, as PgBouncer does.
//
// Settings: synchronous_commit stays as it is; off may lose the last appends in a crash. The
// transaction isolation has to be read committed, as it is by default. Each connection of
// Config.MaxConns is one of max_connections, and one more listens.
//
// Vacuum: only deletions and replaced snapshots leave dead rows. The table of
// events is set up to be vacuumed and analyzed often, in small bites. Space that
// deletions freed is used again, and not given back to the disk.
//
// Partitions: events may be partitioned by hash of the ID, and not by time.
//
// Backup and restore: pg_dump and physical backups are both complete. After a restore, or when a
// standby without the last commits took over, events that were acknowledged may be
// gone: entities in memory get a conflict and recover from what is there, readers get
// ErrRewound or journal.ErrOffset where that can be noticed. Never restore the
// tables without the sequence; it is noticed, and refused.
//
// # Caveats
//
//   - An append that waits for another transaction of the same ID holds all
//     writes of its call up. Each such transaction is one statement, so nobody
//     forgets to end it.
//   - An append that hangs in the server holds queries back, until it ends.
//   - MaxConns has to be above MaxAppends, or recoveries wait behind appends.
//   - The payloads that a page of Replay yields (1,000 events or 1 MiB) share
//     memory.
//   - docs/decisions 0012 and 0017 to 0019 say why it is so.
package postgres
