// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"time"

	"github.com/refold-io/refold/journal"
)

// Certain reports whether a statement that failed with an error is certainly not committed.
func Certain(err error) bool { return certain(err) }

// WithCancelGrace returns a Config with another time to wait for the outcome of a canceled
// statement.
func (c Config) WithCancelGrace(d time.Duration) Config {
	c.grace = d
	return c
}

// PoolSize returns the maximum number of connections of the pool.
func (db *DB) PoolSize() int { return int(db.pool.Config().MaxConns) }

// SessionState returns the number of objects in the only session of a pool that could affect a
// later transaction.
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

// Parts returns the IDs of each statement of an append.
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

// DecodeConflicts decodes the result of append_many and returns the number of conflicts.
func DecodeConflicts(b []byte, chains int) (int, error) {
	conflicts, err := decodeConflicts(b, chains)
	return len(conflicts), err
}
