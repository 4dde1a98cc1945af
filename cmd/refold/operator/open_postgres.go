// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
)

// openPostgres opens a journal on PostgreSQL, which is not changed if it is
// only read.
func openPostgres(ctx context.Context, address string, readOnly bool) (*Source, error) {
	dsn, schema, err := PostgresAddress(address)
	if err != nil {
		return nil, fmt.Errorf("journal %q: %w", redacted(address), err)
	}
	_, _, _, _ = ctx, dsn, schema, readOnly
	return nil, fmt.Errorf("journal on PostgreSQL: there is none yet")
}
