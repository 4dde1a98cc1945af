// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgjournal adds journals on PostgreSQL to a program of package operator: addresses such as
// postgres://USER@HOST/DATABASE, and the subcommand migrate.
//
//	operator.Program{
//		Entities:  []operator.Linked{operator.Entity(AccountType(rates))},
//		Databases: []operator.Database{pgjournal.Database()},
//	}.Main()
//
// The package is separate from package operator, so that programs without PostgreSQL do not compile
// its driver.
package pgjournal

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/plugins/postgres"
)

// Database opens journals on PostgreSQL.
func Database() operator.Database {
	return operator.Database{
		Schemes: schemes(),
		Forms:   "postgres://USER@HOST/DATABASE, or postgres: with " + Env + " set",
		Open: func(ctx context.Context, address string) (*operator.Source, error) {
			return open(ctx, address, true)
		},
		OpenTarget: func(ctx context.Context, address string) (*operator.Source, error) {
			return open(ctx, address, false)
		},
		Commands: []operator.Command{
			{Name: "migrate", Help: "Create and change the tables of PostgreSQL.", Grammar: &migrateCommand{}},
		},
	}
}

// open opens a journal. If readOnly is true, the tables must exist.
func open(ctx context.Context, address string, readOnly bool) (*operator.Source, error) {
	dsn, schema, err := ParseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("journal %q: %w", operator.Redact(address), err)
	}
	db, err := postgres.Open(ctx, dsn, postgres.Config{Schema: schema, CheckOnly: readOnly})
	if readOnly && errors.Is(err, postgres.ErrSchema) {
		return nil, fmt.Errorf("%w; the migrate command applies the missing migrations", err)
	}
	if err != nil {
		return nil, err
	}
	return &operator.Source{Journal: db.Journal(), Snapshots: db.Snapshots(), Close: db.Close}, nil
}
