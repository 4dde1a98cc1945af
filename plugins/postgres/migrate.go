// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/refold-io/refold/journal"
)

//go:embed migration/*.up.sql
var migrationFiles embed.FS

// Migration is one step of the schema. Each step records itself in the table migrations.
type Migration struct {
	// Version counts from 1 without gaps.
	Version int
	// Name is the file name without its suffixes, such as "001_journal".
	Name string
	// SQL is the text of the step. Config.Schema replaces the schema "refold" in it.
	SQL string
}

// Migrations returns all steps, in order.
func Migrations() []Migration {
	names, err := fs.Glob(migrationFiles, "migration/*.up.sql")
	if err != nil {
		panic(err) // the pattern is constant
	}
	slices.Sort(names)
	all := make([]Migration, 0, len(names))
	for i, name := range names {
		sql, err := migrationFiles.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		all = append(all, Migration{Version: i + 1, Name: strings.TrimSuffix(path.Base(name), ".up.sql"), SQL: string(sql)})
	}
	return all
}

// Migrate brings the schema up to date and returns the executed steps. With Config.CheckOnly,
// Migrate executes no step and returns the missing steps. Errors are those of Open. Several
// programs may call it concurrently.
func Migrate(ctx context.Context, dsn string, cfg Config) ([]Migration, error) {
	db, err := connect(ctx, dsn, cfg)
	if err != nil {
		return nil, err
	}
	defer db.closeConns()
	steps, err := db.prepareSchema(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: migrate: %w", err)
	}
	return steps, nil
}

// prepareSchema executes the missing steps and returns them. With Config.CheckOnly it executes none.
func (db *DB) prepareSchema(ctx context.Context) (steps []Migration, err error) {
	conn, err := db.acquire(ctx)
	if err != nil {
		return nil, db.fail(ctx, err)
	}
	version, err := db.version(ctx, conn.Conn())
	db.release(ctx, conn)
	if err != nil {
		return nil, err
	}
	if steps = Migrations()[version:]; len(steps) > 0 && !db.cfg.CheckOnly {
		return db.migrate(ctx)
	}
	return steps, nil
}

// version returns the version of the schema, 0 if there is none.
func (db *DB) version(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (int, error) {
	var exists bool
	// All names are qualified, because this statement verifies the search path. After the wait for the
	// lock, to_regclass could return a cached result.
	var encoding, path, messages string
	err := q.QueryRow(ctx, strings.ReplaceAll(`SELECT {c}.current_setting('server_encoding'), {c}.current_setting('search_path'), {c}.current_setting('client_min_messages'),
		EXISTS (SELECT FROM {c}.pg_class c JOIN {c}.pg_namespace n ON n.oid OPERATOR({c}.=) c.relnamespace
			WHERE n.nspname OPERATOR({c}.=) $1 AND c.relname OPERATOR({c}.=) 'migrations')`, "{c}", "pg_catalog"), db.cfg.Schema).Scan(&encoding, &path, &messages, &exists)
	switch {
	case err != nil:
		return 0, db.fail(ctx, err)
	case path != searchPath || messages == "error": // a proxy has dropped the settings
		return 0, db.schemaError(nil, "is unsafe to use: a session of role %q has search_path %q and client_min_messages %q, want %q and warning", db.role, path, messages, searchPath)
	case encoding != "UTF8" && encoding != "SQL_ASCII": // one character outside of the encoding would fail all writes of a call
		return 0, db.schemaError(nil, "is unusable: the database has encoding %s, want UTF8", encoding)
	case !exists:
		return 0, nil
	}
	var version int
	if err := q.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+db.schema+".migrations").Scan(&version); err != nil {
		return 0, db.fail(ctx, err)
	}
	known := len(Migrations())
	switch {
	case version > known:
		return 0, describe([]error{journal.ErrNewerVersion}, "schema %q of %s has version %d, this program supports %d", db.cfg.Schema, db.target, version, known)
	case version <= 0:
		return 0, db.schemaError(nil, "has an empty table migrations: drop it if there are no other tables, or else restore its rows")
	}
	return version, nil
}

// migrate executes the missing steps in one transaction, one program at a time.
func (db *DB) migrate(ctx context.Context) (taken []Migration, err error) {
	conn, err := db.acquire(ctx)
	if err != nil {
		return nil, db.fail(ctx, err)
	}
	defer db.release(ctx, conn)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, db.fail(ctx, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // fails after a commit, or without a connection
	if _, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock(db.cfg.Schema)); err != nil {
		return nil, db.fail(ctx, err)
	}
	version, err := db.version(ctx, tx)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		if err = db.createSchema(ctx, tx); err != nil {
			return nil, err
		}
	}
	for _, m := range Migrations()[version:] {
		sql := strings.ReplaceAll(m.SQL, defaultSchema+".", db.schema+".")
		if _, err = conn.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, db.fail(ctx, err))
		}
		taken = append(taken, m)
	}
	if _, err = tx.Exec(ctx, "RESET search_path"); err == nil { // the steps have set it for their session
		err = tx.Commit(ctx)
	}
	if err != nil {
		return nil, db.fail(ctx, err)
	}
	return taken, nil
}

// createSchema creates the schema unless it exists. The role needs the right to create schemas only
// if the schema is missing. The owner of an existing schema can replace the functions in it, so
// createSchema refuses an owner that has no power over the role of this session.
func (db *DB) createSchema(ctx context.Context, tx pgx.Tx) error {
	var owner string
	var trusted bool
	err := tx.QueryRow(ctx, `SELECT o.rolname, o.rolname = current_user OR o.rolsuper OR o.oid = d.datdba OR NOT r.rolsuper AND pg_has_role(o.oid, 'MEMBER')
		FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner, pg_database d, pg_roles r
		WHERE n.nspname = $1 AND d.datname = current_database() AND r.rolname = current_user`, db.cfg.Schema).Scan(&owner, &trusted)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		_, err = tx.Exec(ctx, "CREATE SCHEMA "+db.schema)
	case err == nil && !trusted:
		return db.schemaError(nil, "is unsafe to use: its owner is role %q: migrate as this role, or ALTER SCHEMA ... OWNER TO %q", owner, db.role)
	}
	if err != nil {
		return fmt.Errorf("create schema %q: %w", db.cfg.Schema, db.fail(ctx, err))
	}
	return nil
}

// literal quotes a string for SQL. It assumes standard_conforming_strings.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// migrationLock is the key of the advisory lock under which a schema is migrated.
func migrationLock(schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("refold/migration/" + schema))
	return int64(h.Sum64()) //nolint:gosec // any 64 bits
}
