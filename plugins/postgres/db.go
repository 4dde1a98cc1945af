// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/internal/plugin"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
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

// DB is an open database: a journal and a snapshot store in one schema, on one pool of connections.
// It is safe for concurrent use.
type DB struct {
	cfg    Config
	dsn    string // may contain a password: never log it or put it into an error
	pool   *pgxpool.Pool
	target string // database and server, for errors
	role   string
	schema string // quoted

	sql       statements
	journal   Journal
	snapshots SnapshotStore
	tail      *tail     // wakes readers of this process
	notifier  *notifier // wakes readers of other processes
	watch     *watch
	own       ownEvents

	highest, replay, load *gatherer
	looks                 appendLooks

	closing sync.Once
	leaving sync.WaitGroup // connections that are being closed
	handles plugin.Handles
}

// Open connects to the database of a connection string, which is a URL or keywords and values. The
// PG... variables of the environment supply omitted parts. Open creates and migrates the schema
// unless Config.CheckOnly is set.
//
// It fails with ErrDSN for an invalid connection string, and with journal.ErrUnavailable if the
// server does not answer or rejects the login. It fails with ErrSchema, ErrDenied or ErrReadOnly if
// the schema is missing and cannot be created, and with journal.ErrNewerVersion if a newer version
// of Refold has migrated the schema. Errors contain no password.
func Open(ctx context.Context, dsn string, cfg Config) (*DB, error) {
	db, err := connect(ctx, dsn, cfg)
	if err != nil {
		return nil, err
	}
	steps, err := db.prepareSchema(ctx)
	if err == nil && cfg.CheckOnly && len(steps) > 0 {
		names := make([]string, len(steps))
		for i, m := range steps {
			names[i] = m.Name
		}
		err = db.schemaError(nil, "lacks migrations: %s", strings.Join(names, ", "))
	}
	if err != nil {
		db.closeConns()
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	return db, nil
}

// connect opens the pool without using a connection.
func connect(ctx context.Context, dsn string, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	pc, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if _, err = parseDSN(cmp.Or(cfg.NotifyDSN, dsn)); err != nil {
		return nil, describe([]error{err}, "postgres: Config.NotifyDSN: %s", strings.TrimPrefix(err.Error(), "postgres: "))
	}
	switch {
	case cfg.MaxConns > 0:
		pc.MaxConns = int32(cfg.MaxConns) //nolint:gosec // validated
		pc.MinConns, pc.MinIdleConns = min(pc.MinConns, pc.MaxConns), min(pc.MinIdleConns, pc.MaxConns)
	case !sizesPool(dsn):
		pc.MaxConns = max(pc.MaxConns, defaultConns)
	}
	cc := pc.ConnConfig
	if !cfg.CachedStatements {
		cc.DefaultQueryExecMode = pgx.QueryExecModeExec
		cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "refold"
	}
	cc.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return &canceler{conn: conn, grace: cfg.grace} }
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	db := &DB{cfg: cfg, dsn: dsn, pool: pool, role: cc.User, schema: pgx.Identifier{cfg.Schema}.Sanitize()}
	db.target = fmt.Sprintf("database %q at %s", cc.Database, net.JoinHostPort(cc.Host, strconv.Itoa(int(cc.Port))))
	db.watch = &watch{log: cfg.Logger, slowCall: slowCall, longStall: longStall}
	db.sql = newStatements(db.schema, lockClass(cfg.Schema))
	db.journal = Journal{handle: plugin.NewHandle(), db: db}
	db.snapshots = SnapshotStore{handle: plugin.NewHandle(), db: db}
	db.own.seed = maphash.MakeSeed()
	db.looks.db, db.looks.limit = db, lookTimeout
	db.highest, db.replay, db.load = newGatherer(db, &db.sql.highestMany), newGatherer(db, &db.sql.replayMany), newGatherer(db, &db.sql.loadMany)
	db.tail, db.notifier = newTail(db), newNotifier(db) //nolint:contextcheck // they live as long as the database
	return db, nil
}

// parseDSN parses a connection string. It rejects strings in which an unescaped character in a
// password has shifted the end of the password into other parts, because errors would quote these
// parts. It also rejects strings with which the driver would send plaintext to another machine
// whose server offers no TLS.
func parseDSN(dsn string) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, ErrDSN // the error may quote a password
	}
	url := strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
	if url && (strings.Contains(pc.ConnConfig.Host, "@") || strings.Contains(pc.ConnConfig.Database, "@") && !strings.Contains(dsn, "%40")) {
		return nil, ErrDSN
	}
	// The settings of a role or a database must not change the encoding of texts, let the objects of
	// other roles replace operators and functions of the server, or suppress warnings.
	params := pc.ConnConfig.RuntimeParams
	params["client_encoding"], params["search_path"], params["client_min_messages"] = "UTF8", searchPath, "warning"
	cc := pc.ConnConfig
	cc.OnNotice = keepWarning
	encrypted, remote := cc.TLSConfig != nil, plainRemote(cc.Host, cc.Port, cc.TLSConfig)
	for _, other := range cc.Fallbacks {
		encrypted, remote = encrypted || other.TLSConfig != nil, remote || plainRemote(other.Host, other.Port, other.TLSConfig)
		if cc.ValidateConnect == nil && (other.Host != cc.Host || other.Port != cc.Port) {
			cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
		}
	}
	if encrypted && remote { // with sslmode=disable, no attempt is encrypted
		return nil, errPlaintext
	}
	return pc, nil
}

// plainRemote reports whether an attempt to connect sends plaintext to another machine.
func plainRemote(host string, port uint16, encryption *tls.Config) bool {
	network, _ := pgconn.NetworkAddress(host, port)
	ip := net.ParseIP(host)
	return encryption == nil && network != "unix" && host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// searchPath is the search path of all sessions.
const searchPath = "pg_catalog, pg_temp"

// sizesPool reports whether a valid connection string sets the size of the pool.
func sizesPool(dsn string) bool {
	cc, err := pgx.ParseConfig(dsn)
	return err == nil && cc.RuntimeParams["pool_max_conns"] != ""
}

// lockClass is the first key of the advisory locks of a schema. Two schemas of one database with
// the same class only cause each other unnecessary waits.
func lockClass(schema string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("refold/" + schema))
	return int32(h.Sum32()) //nolint:gosec // any 32 bits
}

// Journal returns the journal. All calls return the same one.
//
// All connections are closed when the DB is closed. They are also closed when the journal and, if
// Snapshots was called, the snapshot store are closed.
func (db *DB) Journal() journal.Journal {
	db.handles.Take(db.journal.handle)
	return &db.journal
}

// Snapshots returns the snapshot store. All calls return the same one. See Journal about closing.
func (db *DB) Snapshots() snapshot.Store {
	db.handles.Take(db.snapshots.handle)
	return &db.snapshots
}

// Close closes the journal and the snapshot store, waits for running calls, and closes all
// connections. A second Close does nothing.
func (db *DB) Close() error {
	db.journal.handle.Shut()
	db.snapshots.handle.Shut()
	db.closing.Do(db.closeConns)
	return nil
}

func (db *DB) closeConns() {
	db.tail.close()
	db.notifier.close()
	for _, g := range []*gatherer{db.highest, db.replay, db.load} {
		g.running.Wait()
	}
	db.looks.running.Wait()
	db.pool.Close()
	db.leaving.Wait()
}
