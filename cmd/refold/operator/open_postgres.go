// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/plugins/postgres"
)

// openPostgres opens a journal on PostgreSQL, which is not changed if it is
// only read.
func openPostgres(ctx context.Context, address string, readOnly bool) (*Source, error) {
	dsn, schema, err := PostgresAddress(address)
	if err != nil {
		return nil, fmt.Errorf("journal %q: %w", Redact(address), err)
	}
	db, err := postgres.Open(ctx, dsn, postgres.Config{Schema: schema, CheckOnly: readOnly})
	if readOnly && errors.Is(err, postgres.ErrSchema) {
		return nil, fmt.Errorf("%w; the migrate command creates what is missing", err)
	}
	if err != nil {
		return nil, err
	}
	return &Source{Journal: db.Journal(), Snapshots: db.Snapshots(), Close: db.Close}, nil
}
