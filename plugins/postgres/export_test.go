// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"time"

	"github.com/refold-io/refold/journal"
)

// Certain reports whether an error says that a statement was surely not committed.
func Certain(err error) bool { return certain(err) }

// WithCancelGrace returns a Config under which a call that was given up waits so long for the server to say what became of it.
func (c Config) WithCancelGrace(d time.Duration) Config {
	c.grace = d
	return c
}

// PoolSize returns how many connections the pool opens at most.
func (db *DB) PoolSize() int { return int(db.pool.Config().MaxConns) }

// SessionState counts what the one connection of a pool holds that a later transaction on it could
// notice.
func (db *DB) SessionState(ctx context.Context) (held int, err error) {
	conn, err := db.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer db.release(ctx, conn)
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_prepared_statements) + (SELECT count(*) FROM pg_listening_channels())
		+ (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')
		+ (SELECT count(*) FROM pg_settings WHERE source = 'session')
		+ (SELECT count(*) FROM pg_cursors WHERE name <> '')`).Scan(&held)
	return held, err
}

// Parts returns the IDs of the statements that an append consists of.
func Parts(writes []journal.Write) (parts [][]string) {
	for part := range newBatch(writes).parts {
		var ids []string
		for _, c := range part {
			ids = append(ids, c.id)
		}
		parts = append(parts, ids)
	}
	return parts
}

// DecodeConflicts decodes the result of append_many, and returns how many conflicts there are.
func DecodeConflicts(b []byte, chains int) (int, error) {
	conflicts, err := decodeConflicts(b, chains)
	return len(conflicts), err
}
