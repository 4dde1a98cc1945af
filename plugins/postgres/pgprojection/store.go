// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgprojection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/projection"
)

// Config configures a store. The zero value is the default.
type Config struct {
	// Schema is the PostgreSQL schema of the table of positions, as in postgres.Config: 1 to 63
	// ASCII letters, digits, "_" and "-", not starting with "pg_". Defaults to "refold".
	Schema string
}

const identifier = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

func (c Config) validate() error {
	if len(c.Schema) > 63 || strings.Trim(c.Schema, identifier) != "" || strings.HasPrefix(c.Schema, "pg_") {
		return fmt.Errorf("%w: Config.Schema is %.80q, want 1 to 63 letters, digits, _ and -, not starting with pg_", projection.ErrInvalid, c.Schema)
	}
	return nil
}

// Store stores positions in the PostgreSQL database of the read models. It is safe for concurrent
// use.
type Store struct {
	pool *pgxpool.Pool
	sql  statements
}

var _ projection.TxStore[pgx.Tx] = (*Store)(nil)

type statements struct{ load, advance, begin, remove, insert, reset string }

// NewStore returns a store on a pool, which it does not close. NewStore does not contact the
// server. If the schema is missing, later calls fail; postgres.Open or postgres.Migrate creates it.
// The error of NewStore matches projection.ErrInvalid and names each invalid argument.
func NewStore(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	cfg.Schema = cmp.Or(cfg.Schema, "refold")
	err := cfg.validate()
	if pool == nil {
		err = errors.Join(fmt.Errorf("%w: pool is nil", projection.ErrInvalid), err)
	}
	if err != nil {
		return nil, fmt.Errorf("pgprojection: new store: %w", err)
	}
	table := pgx.Identifier{cfg.Schema, "projections"}.Sanitize()
	r := strings.NewReplacer("TABLE", table)
	return &Store{pool: pool, sql: statements{
		load: r.Replace(`SELECT first_slice, slices, at_offset, clear, claim FROM TABLE WHERE projection = $1 ORDER BY first_slice`),
		advance: r.Replace(`UPDATE TABLE SET at_offset = $1, clear = $2, claim = $3, moved_at = now()
			WHERE projection = $4 AND first_slice = $5 AND slices = $6 AND at_offset = $7 AND clear = $8 AND claim = $9`),
		begin: r.Replace(`INSERT INTO TABLE (projection, first_slice, slices, at_offset, clear, claim)
			SELECT $1::text, u.* FROM unnest($2::int[], $3::int[], $4::text[], $5::bool[], $6::text[]) u
			WHERE NOT EXISTS (SELECT FROM TABLE WHERE projection = $1) ORDER BY 2 ON CONFLICT DO NOTHING`),
		remove: r.Replace(`DELETE FROM TABLE p USING unnest($2::int[], $3::int[], $4::text[], $5::bool[], $6::text[]) u (first_slice, slices, at_offset, clear, claim)
			WHERE p.projection = $1 AND p.first_slice = u.first_slice AND p.slices = u.slices AND p.at_offset = u.at_offset AND p.clear = u.clear AND p.claim = u.claim`),
		insert: r.Replace(`INSERT INTO TABLE (projection, first_slice, slices, at_offset, clear, claim)
			SELECT $1::text, u.* FROM unnest($2::int[], $3::int[], $4::text[], $5::bool[], $6::text[]) u`),
		// The result is false if a concurrent move has replaced rows: the new ones are not changed.
		reset: r.Replace(`WITH changed AS (
				UPDATE TABLE SET at_offset = '', clear = true, claim = '', moved_at = now() WHERE projection = $1 RETURNING first_slice
			)
			SELECT (SELECT count(*) FROM changed) = (SELECT count(*) FROM TABLE WHERE projection = $1)`),
	}}, nil
}

// exec executes a statement in one round trip and without a prepared statement, so that proxies
// that pool transactions work.
type exec interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Load implements projection.Store.
func (s *Store) Load(ctx context.Context, name string) ([]projection.Position, error) {
	rows, err := s.pool.Query(ctx, s.sql.load, pgx.QueryExecModeExec, name)
	if err != nil {
		return nil, fail(ctx, "load", name, err)
	}
	positions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (projection.Position, error) {
		var p projection.Position
		bad := row.Scan(&p.Slices.First, &p.Slices.Count, (*string)(&p.Offset), &p.Clear, &p.Claim)
		return p, bad
	})
	if err != nil {
		return nil, fail(ctx, "load", name, err)
	}
	return positions, nil
}

// Save implements projection.Store.
func (s *Store) Save(ctx context.Context, m projection.Move) error {
	if advances(m) {
		err := s.move(ctx, s.pool, m)
		if lostRace(err) { // under REPEATABLE READ as the default isolation
			err = projection.ErrFenced
		}
		if err != nil {
			return fail(ctx, "save", m.Projection, err)
		}
		return nil
	}
	return s.Apply(ctx, m, func(context.Context, pgx.Tx) error { return nil })
}

// Reset implements projection.Store.
func (s *Store) Reset(ctx context.Context, name string) error {
	err := errMoves
	for range attempts {
		var all bool
		switch err = s.pool.QueryRow(ctx, s.sql.reset, pgx.QueryExecModeExec, name).Scan(&all); {
		case err == nil && all:
			return nil
		case err == nil:
			err = errMoves
		case !lostRace(err) || ctx.Err() != nil:
			return fail(ctx, "reset", name, err)
		}
	}
	return fail(ctx, "reset", name, fmt.Errorf("%w: %w", projection.ErrUnavailable, err))
}

var errMoves = errors.New("other processes replaced the ranges of slices during each attempt")

// advances reports whether a move changes the offset of a single range.
func advances(m projection.Move) bool {
	return len(m.From) == 1 && len(m.To) == 1 && m.From[0].Slices == m.To[0].Slices
}

// move executes a move. It locks the rows until the end of the transaction, so that a concurrent
// move waits and is then fenced.
func (s *Store) move(ctx context.Context, db exec, m projection.Move) error {
	if advances(m) {
		from, to := m.From[0], m.To[0]
		return wants(1)(db.Exec(ctx, s.sql.advance, pgx.QueryExecModeExec, string(to.Offset), to.Clear, to.Claim,
			m.Projection, from.Slices.First, from.Slices.Count, string(from.Offset), from.Clear, from.Claim))
	}
	if len(m.From) == 0 {
		return wants(len(m.To))(db.Exec(ctx, s.sql.begin, columns(m.Projection, m.To)...))
	}
	if err := wants(len(m.From))(db.Exec(ctx, s.sql.remove, columns(m.Projection, m.From)...)); err != nil {
		return err
	}
	return wants(len(m.To))(db.Exec(ctx, s.sql.insert, columns(m.Projection, m.To)...))
}

// wants checks the number of rows that a statement has changed.
func wants(rows int) func(tag pgconn.CommandTag, err error) error {
	return func(tag pgconn.CommandTag, err error) error {
		if err == nil && tag.RowsAffected() != int64(rows) {
			return projection.ErrFenced
		}
		return err
	}
}

// columns returns positions as the parameters of a statement.
func columns(name string, positions []projection.Position) []any {
	var (
		firsts, counts  []int32
		offsets, claims []string
		clears          []bool
	)
	for _, p := range positions {
		firsts, counts = append(firsts, int32(p.Slices.First)), append(counts, int32(p.Slices.Count)) //nolint:gosec // at most 1,024
		offsets, clears, claims = append(offsets, string(p.Offset)), append(clears, p.Clear), append(claims, p.Claim)
	}
	return []any{pgx.QueryExecModeExec, name, firsts, counts, offsets, clears, claims}
}

// rollbackTimeout bounds the rollback of a failed transaction.
const rollbackTimeout = 5 * time.Second

// attempts is the number of tries of a transaction that the server aborts because of other
// transactions, such as in a deadlock.
const attempts = 5

// Apply implements projection.TxStore. It moves the position first. Of two transactions for the
// same events, the second therefore waits before it does any work. The transaction is READ
// COMMITTED, regardless of the database's default.
func (s *Store) Apply(ctx context.Context, m projection.Move, f func(ctx context.Context, tx pgx.Tx) error) error {
	var err error
	for range attempts {
		if err = s.apply(ctx, m, f); err == nil {
			return nil
		}
		if !lostRace(err) || ctx.Err() != nil {
			return fail(ctx, "apply", m.Projection, err)
		}
	}
	return fail(ctx, "apply", m.Projection, fmt.Errorf("%w: %w", projection.ErrUnavailable, err))
}

func (s *Store) apply(ctx context.Context, m projection.Move, f func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ending) // fails after a commit, or without a connection
	}()
	if err = s.move(ctx, tx, m); err != nil {
		return err
	}
	if err = f(ctx, tx); err != nil {
		if tx.Conn().IsClosed() || outage(err) {
			return fmt.Errorf("%w: %w", projection.ErrUnavailable, err)
		}
		return err
	}
	err = tx.Commit(ctx)
	if refused(err) {
		return fmt.Errorf("%w: %w", projection.ErrRefused, err)
	}
	return err
}

// fail adds the operation to an error, and the cause of an ended context.
func fail(ctx context.Context, verb, name string, err error) error {
	if pg := serverError(err); pg != nil && !errors.Is(err, projection.ErrRefused) {
		noTable := (pg.Code == "42P01" || pg.Code == "3F000") && strings.Contains(pg.Message, "projections")
		noColumn := pg.Code == "42703" && verb == "load"
		if noTable || noColumn {
			err = fmt.Errorf("%w: the table of positions is missing or old: apply the migrations of plugins/postgres: %w", projection.ErrNotSetUp, err)
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) && !errors.Is(err, projection.ErrFenced) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return fmt.Errorf("postgres: %s positions of %q: %w", verb, name, err)
}

// serverError returns the error that the server reported, or nil.
func serverError(err error) *pgconn.PgError {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	return pg
}

func class(pg *pgconn.PgError) string { return pg.Code[:min(2, len(pg.Code))] }

// lostRace reports whether the server aborted a transaction because of other transactions, so that
// a retry may succeed. The causes are deadlocks and serialization failures.
func lostRace(err error) bool {
	pg := serverError(err)
	return pg != nil && (pg.Code == "40001" || pg.Code == "40P01")
}

// outage reports whether an error concerns the server and not the statement: no connection, no
// memory or disk, a shutdown, a standby, an unavailable lock.
func outage(err error) bool {
	pg := serverError(err)
	if pg == nil {
		return false
	}
	switch class(pg) {
	case "08", "53", "58", "XX":
		return true
	case "57":
		return pg.Code != "57014" // canceled, as the statement took too long
	}
	return pg.Code == "25006" || pg.Code == "55P03"
}

// refused reports whether a commit was rejected because of the contents of the transaction: a
// failed statement, or a deferred constraint at the end.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	pg := serverError(err)
	return pg != nil && pg.SeverityUnlocalized == "ERROR" && !outage(err) && class(pg) != "40" && class(pg) != "57"
}
