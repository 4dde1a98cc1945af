// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/cmd/refold/operator/pgjournal"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/store"
)

// openPostgres opens a store on PostgreSQL. Read-only, it requires that the tables exist.
func openPostgres(ctx context.Context, address string, readOnly bool) (store.DB, error) {
	dsn, schema, err := pgjournal.ParseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("journal on PostgreSQL: %w", err)
	}
	db, err := postgres.Open(ctx, dsn, postgres.Config{Schema: schema, CheckOnly: readOnly})
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err) // the address may contain a password
	}
	return db, nil
}

// databases are the databases that the refold command opens.
func databases() []operator.Database { return []operator.Database{pgjournal.Database()} }
