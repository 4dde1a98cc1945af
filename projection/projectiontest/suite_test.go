// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projectiontest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	projectiontest.Run(t, projectiontest.Config{
		Open: func(projectiontest.T) projection.Store { return new(projection.Memory) },
	})
}

func TestTable(t *testing.T) {
	t.Parallel()
	projectiontest.Run(t, projectiontest.Config{
		Open:   func(projectiontest.T) projection.Store { return new(projectiontest.Table) },
		Reopen: func(_ projectiontest.T, store projection.Store) projection.Store { return store },
	})
	projectiontest.RunTx(t, txConfig(func() projection.TxStore[*projectiontest.Rows] { return new(projectiontest.Table) }))
}

func txConfig(open func() projection.TxStore[*projectiontest.Rows]) projectiontest.TxConfig[*projectiontest.Rows] {
	return projectiontest.TxConfig[*projectiontest.Rows]{
		Open: func(projectiontest.T) projection.TxStore[*projectiontest.Rows] { return open() },
		Add: func(ctx context.Context, tx *projectiontest.Rows, key string) error {
			if tx.Get(key) != 0 {
				return errors.New("the key exists")
			}
			return tx.Add(ctx, key, 1)
		},
		Keys: func(_ projectiontest.T, store projection.TxStore[*projectiontest.Rows], prefix string) []string {
			var keys []string
			table, ok := store.(interface{ Rows() map[string]int64 })
			if !ok {
				return nil
			}
			for key := range table.Rows() {
				if strings.HasPrefix(key, prefix) {
					keys = append(keys, key)
				}
			}
			return keys
		},
	}
}
