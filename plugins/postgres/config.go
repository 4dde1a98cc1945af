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

// Config configures a database. The zero value is the default.
type Config struct {
	// Schema is the PostgreSQL schema of all tables: 1 to 63 ASCII letters, digits, "_" and "-",
	// not starting with "pg_". Defaults to "refold".
	Schema string
	// CheckOnly makes Open fail with ErrSchema, and name the missing migrations, instead of
	// migrating the schema. It is for programs without the right to create tables. Defaults to
	// false.
	CheckOnly bool
	// MaxConns is the largest number of connections in the pool. Defaults to pool_max_conns in the
	// connection string. Without this setting it defaults to the larger of 16 and the number of
	// CPUs. Up to 4 connections each load snapshots, read highest numbers and replay short histories;
	// further entities that recover at the same time share their statements.
	MaxConns int
	// MaxAppends is the number of calls of Append that a groupcommit.Writer keeps in flight, each
	// on its own connection; the size of the pool limits it. Defaults to 2, so that one call is
	// sent while the other one commits.
	MaxAppends int
	// CachedStatements keeps named prepared statements on each connection, which avoids repeated
	// parsing and planning in the server. It does not work through a proxy that pools transactions,
	// unless the proxy tracks prepared statements. Defaults to false.
	CachedStatements bool
	// MaxSnapshotSize is the largest payload of a snapshot that can be saved or loaded, in bytes.
	// Defaults to 64 MiB; the limit is 512 MiB.
	MaxSnapshotSize int

	// NotifyDSN is the connection string of the connection that listens for notifications from
	// other processes. It must lead to the server itself, not to a proxy that pools transactions.
	// Defaults to the connection string of the journal.
	NotifyDSN string
	// DisableNotify disables sending and receiving of notifications. Events of other processes are
	// then found by polling. Defaults to false.
	DisableNotify bool
	// PollInterval is how often a waiting reader polls for events, in case a notification was lost.
	// Defaults to 1 s, or to 50 ms with DisableNotify.
	PollInterval time.Duration

	// Logger receives reports of conditions that no call returns as an error: lost and restored
	// notifications, an append that blocks queries for more than 5 s, statements of more than 2 s.
	// Each report repeats at most once a minute. Connection strings and passwords are never logged.
	// Defaults to a logger that discards.
	Logger *slog.Logger

	grace time.Duration // cancelGrace, changed by tests
}

// defaultConns is the default size of a pool. With only 4 connections, the default of pgx, entities
// take seconds to recover on a node that takes over shards.
const defaultConns = 16

const (
	defaultSchema          = "refold"
	defaultMaxAppends      = 2
	defaultMaxSnapshotSize = 64 << 20
	highestMaxSnapshotSize = 512 << 20
	maxIdentifier          = 63 // bytes; the server truncates longer ones
	identifier             = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, defaultSchema)
	c.MaxAppends = cmp.Or(c.MaxAppends, defaultMaxAppends)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
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
		"Schema is %.80q, want 1 to %d letters, digits, _ and -, not starting with pg_", c.Schema, maxIdentifier)
	check(c.MaxConns >= 0 && c.MaxConns <= 10_000, "MaxConns is %d, want 0 to 10000", c.MaxConns)
	check(c.MaxAppends >= 0, "MaxAppends is %d, want at least 0", c.MaxAppends)
	check(c.MaxSnapshotSize >= 0 && c.MaxSnapshotSize <= highestMaxSnapshotSize,
		"MaxSnapshotSize is %d, want 0 to %d", c.MaxSnapshotSize, highestMaxSnapshotSize)
	check(c.PollInterval >= 0, "PollInterval is %v, want at least 0", c.PollInterval)
	return errors.Join(errs...)
}
