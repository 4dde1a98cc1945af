// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// DB is an open database: a journal and a snapshot store in one schema, on one
// pool of connections. It is safe for concurrent use.
type DB struct {
	cfg    Config
	dsn    string // holds a password: never in a log or an error
	pool   *pgxpool.Pool
	target string // database and server, for errors
	role   string
	schema string // quoted

	sql       statements
	journal   Journal
	snapshots SnapshotStore
	tail      *tail     // wakes readers
	notifier  *notifier // wakes those of other processes
	watch     *watch

	closing sync.Once
	leaving sync.WaitGroup // connections that are being closed
	// handles counts journal and snapshot store, if taken and not closed.
	handleMu sync.Mutex
	handles  int
}

// Open connects to the database that a connection string names, as a URL or as
// keywords and values; what it leaves out comes from the PG... variables of the
// environment. It creates and migrates the schema unless Config.CheckOnly says
// otherwise.
//
// It fails with ErrDSN for a string that it can't parse, with
// journal.ErrUnavailable if the server does not answer or lets nobody in, with
// ErrSchema, ErrDenied or ErrReadOnly if the schema is missing and can't be
// created, and with journal.ErrNewerVersion if a newer version of Refold has migrated it. No
// error holds the password.
func Open(ctx context.Context, dsn string, cfg Config) (*DB, error) {
	db, err := connect(ctx, dsn, cfg)
	if err != nil {
		return nil, err
	}
	if err := db.prepareSchema(ctx); err != nil {
		db.shut()
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	return db, nil
}

// connect opens the pool and looks at nothing.
func connect(ctx context.Context, dsn string, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	pc, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if _, err = parseDSN(cfg.NotifyDSN); err != nil {
		return nil, tell([]error{err}, "postgres: Config.NotifyDSN is an invalid connection string: %s", dsnForm)
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
	db := &DB{cfg: cfg, dsn: dsn, pool: pool, target: target(cc), role: cc.User, schema: pgx.Identifier{cfg.Schema}.Sanitize()}
	db.watch = newWatch(cfg.Logger)
	db.sql = newStatements(db.schema, lockClass(cfg.Schema))
	db.journal.db, db.snapshots.db = db, db
	db.tail, db.notifier = newTail(db), newNotifier(db) //nolint:contextcheck // they live as long as the database
	return db, nil
}

// parseDSN parses a connection string. An unescaped character in a password can
// shift its end into other parts, from where errors would quote it.
func parseDSN(dsn string) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, ErrDSN // the error may quote a password
	}
	url := strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
	if url && (strings.Contains(pc.ConnConfig.Host, "@") || strings.Contains(pc.ConnConfig.Database, "@") && !strings.Contains(dsn, "%40")) {
		return nil, ErrDSN
	}
	// What a role or a database is set to must not change the bytes of a text.
	pc.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	return pc, nil
}

// sizesPool reports whether a connection string, which is a valid one, says how many connections there are.
func sizesPool(dsn string) bool {
	cc, err := pgx.ParseConfig(dsn)
	return err == nil && cc.RuntimeParams["pool_max_conns"] != ""
}

func target(cc *pgx.ConnConfig) string {
	return fmt.Sprintf("database %q at %s", cc.Database, net.JoinHostPort(cc.Host, strconv.Itoa(int(cc.Port))))
}

// lockClass is the first number of the advisory locks of a schema. Two schemas
// of one database that have the same only wait for each other where they would
// not have to.
func lockClass(schema string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("refold/" + schema))
	return int32(h.Sum32()) //nolint:gosec // any 32 bits
}

// Journal returns the journal. It is the same one each time.
//
// Close the DB, or the journal and, if it was taken, the snapshot store: the
// connections are closed with the last of them.
func (db *DB) Journal() journal.Journal {
	db.take(&db.journal.handle)
	return &db.journal
}

// Snapshots returns the snapshot store. It is the same one each time. See
// Journal about closing.
func (db *DB) Snapshots() snapshot.Store {
	db.take(&db.snapshots.handle)
	return &db.snapshots
}

// Close closes the journal and the snapshot store, waits for the calls in
// progress, and closes all connections. A second Close does nothing.
func (db *DB) Close() error {
	db.journal.shut()
	db.snapshots.shut()
	db.closing.Do(db.shut)
	return nil
}

// shut closes all connections.
func (db *DB) shut() {
	db.tail.close()
	db.notifier.close()
	db.pool.Close()
	db.leaving.Wait()
}

// handle is what the journal and the snapshot store have in common: each can be
// closed by itself.
type handle struct {
	mu     sync.RWMutex // shared: a call is in progress
	closed bool
	taken  bool // guarded by DB.handleMu
}

// enter reports whether the handle is open. If so, leave must be called.
func (h *handle) enter() bool {
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		return false
	}
	return true
}

func (h *handle) leave() { h.mu.RUnlock() }

// shut waits for the calls in progress and reports whether the handle was open.
func (h *handle) shut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := !h.closed
	h.closed = true
	return open
}

func (db *DB) take(h *handle) {
	db.handleMu.Lock()
	defer db.handleMu.Unlock()
	if !h.taken {
		h.taken = true
		db.handles++
	}
}

// drop closes a handle, and the database with the last one.
func (db *DB) drop(h *handle) error {
	if !h.shut() {
		return nil
	}
	db.handleMu.Lock()
	db.handles--
	last := db.handles == 0
	db.handleMu.Unlock()
	if last {
		return db.Close()
	}
	return nil
}
