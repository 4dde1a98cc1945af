// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Config says how a database is opened. The zero value is the default.
type Config struct {
	// Schema is the PostgreSQL schema that holds all tables: 1 to 63 letters of
	// ASCII, digits, "_" and "-", not beginning with "pg_". Defaults to "refold".
	Schema string
	// CheckOnly makes Open fail with ErrSchema, and say what is missing, where
	// it would migrate the schema otherwise. Programs that run without the
	// right to create tables want it. Defaults to false.
	CheckOnly bool
	// MaxConns is how many connections the pool opens at most. Defaults to
	// pool_max_conns in the connection string, or else to the greater of 16 and
	// the number of CPUs: when many entities start at once, each recovers on a
	// connection of its own.
	MaxConns int
	// MaxAppends is how many calls of Append a groupcommit.Writer keeps in flight,
	// each on a connection of its own; it is never more than the pool has.
	// Defaults to 2: one is sent while the other commits.
	MaxAppends int
	// CachedStatements keeps named prepared statements on each connection, which
	// saves the server from parsing and planning again. It does not work behind
	// a proxy that pools transactions, unless the proxy tracks prepared
	// statements. Defaults to false.
	CachedStatements bool
	// MaxSnapshotSize is the largest payload of a snapshot, in bytes, that is
	// saved or loaded. Defaults to 64 MiB; at most 512 MiB.
	MaxSnapshotSize int

	// NotifyDSN is the connection string of the one connection that listens for
	// notifications of other processes. It must lead to the server itself, not
	// to a proxy that pools transactions. Defaults to the connection string of
	// the journal.
	NotifyDSN string
	// DisableNotify neither sends nor listens for notifications: events of other
	// processes are found by polling. Defaults to false.
	DisableNotify bool
	// PollInterval is how often a reader that waits for events looks by itself, in
	// case a notification was lost. Defaults to 1 s, or to 50 ms with DisableNotify.
	PollInterval time.Duration

	// Logger is told of what no caller is: notifications that are lost and come back,
	// an append that holds queries back for more than 5 s, statements of more than
	// 2 s. The same is told at most once a minute. No connection string and no
	// password is logged. Defaults to one that discards all.
	Logger *slog.Logger

	grace time.Duration // cancelGrace, but in tests
}

// defaultConns is how many connections a pool opens at most if nobody says it. With the 4 of
// pgx the entities of a node that takes over shards wait for seconds to recover.
const defaultConns = 16

const (
	defaultSchema          = "refold"
	defaultMaxAppends      = 2
	defaultMaxSnapshotSize = 64 << 20
	highestMaxSnapshotSize = 512 << 20
	maxIdentifier          = 63 // bytes; the server cuts longer ones
	identifier             = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, defaultSchema)
	c.MaxAppends = cmp.Or(c.MaxAppends, defaultMaxAppends)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.MaxSnapshotSize = cmp.Or(c.MaxSnapshotSize, defaultMaxSnapshotSize)
	c.grace = cmp.Or(c.grace, cancelGrace)
	if c.PollInterval == 0 {
		c.PollInterval = time.Second
		if c.DisableNotify {
			c.PollInterval = 50 * time.Millisecond
		}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("postgres: Config."+format, args...))
		}
	}
	check(len(c.Schema) <= maxIdentifier && strings.Trim(c.Schema, identifier) == "" && !strings.HasPrefix(c.Schema, "pg_"),
		"Schema is %.80q, not 1 to %d letters, digits, _ and - that do not begin with pg_", c.Schema, maxIdentifier)
	check(c.MaxConns >= 0 && c.MaxConns <= 10_000, "MaxConns is %d, not 0 to 10000", c.MaxConns)
	check(c.MaxAppends >= 0, "MaxAppends is %d, less than 0", c.MaxAppends)
	check(c.MaxSnapshotSize >= 0 && c.MaxSnapshotSize <= highestMaxSnapshotSize,
		"MaxSnapshotSize is %d, not 0 to %d", c.MaxSnapshotSize, highestMaxSnapshotSize)
	check(c.PollInterval >= 0, "PollInterval is %v, less than 0", c.PollInterval)
	return errors.Join(errs...)
}
