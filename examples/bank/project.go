// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/plugins/postgres/pgprojection"
	"github.com/refold-io/refold/projection"
)

func databases() []operator.Database { return []operator.Database{pgjournal.Database()} }

func (c *projectCmd) Run(app *app) (err error) {
	address := cmp.Or(c.Database, app.flags.Journal)
	if !isPostgres(address) {
		return usageError(errors.New("project fills a table in PostgreSQL: name the database with --database; bank totals needs none"))
	}
	s, err := openStore(app.ctx, app.flags.Journal, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	table, err := openTotals(app.ctx, address)
	if err != nil {
		return err
	}
	defer table.pool.Close()
	restarts := 0 // unlimited
	if c.Once {
		restarts = 3
	}
	p, err := projection.New(projection.Config[Event]{
		Name:        "bank_totals",
		Journal:     s.Journal(),
		Criteria:    journal.Criteria{Types: []string{AccountTypeName}},
		Events:      AccountType(nil).Events,
		Handler:     table.handler(),
		Workers:     c.Workers,
		MinBackoff:  time.Second,
		MaxRestarts: restarts,
		Logger:      app.warnings(),
	})
	if errors.Is(err, projection.ErrInvalid) {
		return usageError(err)
	}
	if err != nil {
		return err
	}
	if c.Rebuild {
		if err = p.Rebuild(app.ctx); err != nil {
			return err
		}
	}
	if c.Once {
		err = p.CatchUp(app.ctx)
	} else {
		printf(app.stdout, "The totals are in the table %s. Press Ctrl-C to stop; the next run continues from there.\n", table.name)
		if err = p.Run(app.ctx); app.ctx.Err() != nil {
			err = nil // an interrupt is the normal end
		}
	}
	printf(app.stdout, "%s\n", reached(p.Status()))
	return err
}

// reached formats the progress of a projection. Lag is the age of events in progress; before the
// projection has seen the end, the number of remaining events is unknown.
func reached(s projection.Status) string {
	lag := "up to date"
	if s.Lag > 0 {
		lag = fmt.Sprintf("%s late", s.Lag.Round(time.Millisecond))
	} else if !s.CaughtUp {
		lag = "more events may follow"
	}
	return fmt.Sprintf("%s events, %s", thousands(int64(s.Handled)), lag) //nolint:gosec // a count
}

// warnings returns a logger that shows warnings even without --verbose, for a command that
// continues after failures.
func (a *app) warnings() *slog.Logger {
	if a.flags.Verbose {
		return a.logger
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// totalsTable is the read model: one row per day and currency.
type totalsTable struct {
	pool  *pgxpool.Pool
	store *pgprojection.Store
	name  string // quoted
}

// openTotals connects to a database and creates the table in the schema of Refold if it is missing.
func openTotals(ctx context.Context, address string) (*totalsTable, error) {
	dsn, schema, err := pgjournal.ParseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("table on PostgreSQL: %w", err)
	}
	if _, err = postgres.Migrate(ctx, dsn, postgres.Config{Schema: schema}); err != nil {
		return nil, fmt.Errorf("table on PostgreSQL: %w", err)
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, errors.New("table on PostgreSQL: the address is malformed") // the error may quote a password
	}
	store, err := pgprojection.NewStore(pool, pgprojection.Config{Schema: schema})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("table on PostgreSQL: %w", err)
	}
	t := &totalsTable{pool: pool, store: store, name: pgx.Identifier{cmp.Or(schema, "refold"), "bank_totals"}.Sanitize()}
	if _, err := pool.Exec(ctx, t.sql(createTotals)); err != nil {
		pool.Close()
		return nil, fmt.Errorf("create the table %s: %w", t.name, err)
	}
	return t, nil
}

// The statements. TOTALS stands for the name of the table.
const (
	createTotals = `CREATE TABLE IF NOT EXISTS TOTALS (
		day         date           NOT NULL, -- UTC
		currency    text           NOT NULL,
		opened      bigint         NOT NULL, -- accounts
		deposits    bigint         NOT NULL,
		deposited   numeric(38, 2) NOT NULL, -- at the counter, as it was paid in
		withdrawals bigint         NOT NULL,
		withdrawn   numeric(38, 2) NOT NULL, -- at the counter, as it was paid out
		transfers   bigint         NOT NULL, -- started
		debited     numeric(38, 2) NOT NULL, -- for transfers
		credited    numeric(38, 2) NOT NULL, -- by transfers
		refunded    numeric(38, 2) NOT NULL, -- of transfers
		PRIMARY KEY (day, currency)
	)`

	// One statement adds a batch. Its rows are sorted, so that concurrent workers cannot deadlock.
	addTotals = `INSERT INTO TOTALS AS t
		SELECT day::date, currency, opened, deposits, deposited::numeric, withdrawals, withdrawn::numeric,
			transfers, debited::numeric, credited::numeric, refunded::numeric
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::text[], $10::text[], $11::text[])
			AS u (day, currency, opened, deposits, deposited, withdrawals, withdrawn, transfers, debited, credited, refunded)
		ORDER BY 1, 2
		ON CONFLICT (day, currency) DO UPDATE SET
			opened = t.opened + excluded.opened,
			deposits = t.deposits + excluded.deposits, deposited = t.deposited + excluded.deposited,
			withdrawals = t.withdrawals + excluded.withdrawals, withdrawn = t.withdrawn + excluded.withdrawn,
			transfers = t.transfers + excluded.transfers, debited = t.debited + excluded.debited,
			credited = t.credited + excluded.credited, refunded = t.refunded + excluded.refunded`

	clearTotals = `DELETE FROM TOTALS`
)

func (t *totalsTable) sql(statement string) string {
	return strings.ReplaceAll(statement, "TOTALS", t.name)
}

// handler adds each batch of events to the table in the transaction that saves the offset, so that
// each event counts exactly once.
func (t *totalsTable) handler() projection.Handler[Event] {
	return projection.ExactlyOnce[Event, pgx.Tx]{
		Store: t.store,
		Handle: func(ctx context.Context, tx pgx.Tx, events []projection.Envelope[Event]) error {
			sums := make(totals)
			for i := range events {
				sums.add(&events[i])
			}
			_, err := tx.Exec(ctx, t.sql(addTotals), sums.columns()...)
			return err
		},
		Clear: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, t.sql(clearTotals))
			return err
		},
	}
}
