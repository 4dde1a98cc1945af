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

// Config says where positions are. The zero value is the default.
type Config struct {
	// Schema is the PostgreSQL schema with the table of positions, that of
	// postgres.Config: 1 to 63 letters of ASCII, digits, "_" and "-", not beginning
	// with "pg_". Defaults to "refold".
	Schema string
}

const identifier = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, "refold")
	return c
}

func (c Config) validate() error {
	if len(c.Schema) > 63 || strings.Trim(c.Schema, identifier) != "" || strings.HasPrefix(c.Schema, "pg_") {
		return fmt.Errorf("%w: Config.Schema is %.80q, not 1 to 63 letters, digits, _ and - that do not begin with pg_", projection.ErrInvalid, c.Schema)
	}
	return nil
}

// Store keeps positions in a PostgreSQL database, beside the read models that are
// in it. It is safe for concurrent use, and holds nothing but the pool.
type Store struct {
	pool *pgxpool.Pool
	sql  statements
}

var _ projection.TxStore[pgx.Tx] = (*Store)(nil)

// statements are the SQL of a store.
type statements struct{ load, advance, begin, remove, insert, reset string }

// NewStore returns a store on a pool, which it does not close. It asks the server
// nothing: that the schema is there, which postgres.Open and postgres.Migrate
// create, shows when the store is used. The error matches projection.ErrInvalid, and
// names each argument that is missing or wrong.
func NewStore(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
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
		load: r.Replace(`SELECT first_slice, slices, at_offset, clear FROM TABLE WHERE projection = $1 ORDER BY first_slice`),
		advance: r.Replace(`UPDATE TABLE SET at_offset = $1, clear = $2, moved_at = now()
			WHERE projection = $3 AND first_slice = $4 AND slices = $5 AND at_offset = $6 AND clear = $7`),
		begin: r.Replace(`INSERT INTO TABLE (projection, first_slice, slices, at_offset, clear)
			SELECT $1::text, u.* FROM unnest($2::int[], $3::int[], $4::text[], $5::bool[]) u
			WHERE NOT EXISTS (SELECT FROM TABLE WHERE projection = $1) ORDER BY 2 ON CONFLICT DO NOTHING`),
		remove: r.Replace(`DELETE FROM TABLE p USING unnest($2::int[], $3::int[], $4::text[], $5::bool[]) u (first_slice, slices, at_offset, clear)
			WHERE p.projection = $1 AND p.first_slice = u.first_slice AND p.slices = u.slices AND p.at_offset = u.at_offset AND p.clear = u.clear`),
		insert: r.Replace(`INSERT INTO TABLE (projection, first_slice, slices, at_offset, clear)
			SELECT $1::text, u.* FROM unnest($2::int[], $3::int[], $4::text[], $5::bool[]) u`),
		reset: r.Replace(`UPDATE TABLE SET at_offset = '', clear = true, moved_at = now() WHERE projection = $1`),
	}}, nil
}

// exec is a statement that needs one round trip and no prepared statement, so
// that a proxy that pools transactions may stand between.
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
		bad := row.Scan(&p.Slices.First, &p.Slices.Count, (*string)(&p.Offset), &p.Clear)
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
		if lostRace(err) { // where statements run REPEATABLE READ by default
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
	if _, err := s.pool.Exec(ctx, s.sql.reset, pgx.QueryExecModeExec, name); err != nil {
		return fail(ctx, "reset", name, err)
	}
	return nil
}

// advances reports whether a move is that of one range from offset to offset.
func advances(m projection.Move) bool {
	return len(m.From) == 1 && len(m.To) == 1 && m.From[0].Slices == m.To[0].Slices
}

// move carries out a move. The rows stay locked until the transaction ends, so
// that another one that wants to move them waits, and is fenced then.
func (s *Store) move(ctx context.Context, db exec, m projection.Move) error {
	if advances(m) {
		from, to := m.From[0], m.To[0]
		return wants(1)(db.Exec(ctx, s.sql.advance, pgx.QueryExecModeExec, string(to.Offset), to.Clear,
			m.Projection, from.Slices.First, from.Slices.Count, string(from.Offset), from.Clear))
	}
	if len(m.From) == 0 {
		return wants(len(m.To))(db.Exec(ctx, s.sql.begin, columns(m.Projection, m.To)...))
	}
	if err := wants(len(m.From))(db.Exec(ctx, s.sql.remove, columns(m.Projection, m.From)...)); err != nil {
		return err
	}
	return wants(len(m.To))(db.Exec(ctx, s.sql.insert, columns(m.Projection, m.To)...))
}

// wants checks how many rows a statement has changed.
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
		firsts, counts []int32
		offsets        []string
		clears         []bool
	)
	for _, p := range positions {
		firsts, counts = append(firsts, int32(p.Slices.First)), append(counts, int32(p.Slices.Count)) //nolint:gosec // at most 1,024
		offsets, clears = append(offsets, string(p.Offset)), append(clears, p.Clear)
	}
	return []any{pgx.QueryExecModeExec, name, firsts, counts, offsets, clears}
}

// rollbackPatience is how long a transaction that failed may take to end.
const rollbackPatience = 5 * time.Second

// attempts is how often a transaction is tried that lost against others: in a
// deadlock for example.
const attempts = 5

// Apply implements projection.TxStore. The position is moved first, so that of
// two that handle the same events one waits for the other before it does any
// work. The transaction is READ COMMITTED, whatever the default of the database
// is.
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
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
		defer cancel()
		_ = tx.Rollback(ending) // it fails after a commit, and when the connection is lost
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

// fail says what was being done, and answers an ended context with its cause.
func fail(ctx context.Context, verb, name string, err error) error {
	if pg := serverError(err); pg != nil && (pg.Code == "42P01" || pg.Code == "3F000") && !errors.Is(err, projection.ErrRefused) && strings.Contains(pg.Message, "projections") {
		err = fmt.Errorf("%w: the table of positions is missing: apply the migrations of plugins/postgres: %w", projection.ErrNotSetUp, err)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) && !errors.Is(err, projection.ErrFenced) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return fmt.Errorf("postgres: %s positions of %q: %w", verb, name, err)
}

// serverError returns what the server has reported, nil if err is something else.
func serverError(err error) *pgconn.PgError {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	return pg
}

// class returns the first two characters of a SQLSTATE.
func class(pg *pgconn.PgError) string { return pg.Code[:min(2, len(pg.Code))] }

// lostRace reports whether a transaction was surely rolled back because of
// others, and may well succeed the next time: a deadlock, a serialization
// failure.
func lostRace(err error) bool {
	pg := serverError(err)
	return pg != nil && (pg.Code == "40001" || pg.Code == "40P01")
}

// outage reports whether an error is about the server and not about what it was
// asked: no connection, no memory or disk, a shutdown, a standby, a lock that was
// not to be had.
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

// refused reports whether a commit was surely not done because of what was in the
// transaction: a statement had failed in it, or a deferred constraint did at the
// end.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	pg := serverError(err)
	return pg != nil && pg.SeverityUnlocalized == "ERROR" && !outage(err) && class(pg) != "40" && class(pg) != "57"
}
