// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"context"
	"fmt"

	"github.com/syndtr/goleveldb/leveldb/util"
)

// compactSteps is into how many parts Compact divides the events.
const compactSteps = 16

// Compact frees the disk space of what was deleted, by rewriting all tables, and
// drops from the order of the events the groups of which none is left. It
// reads and writes about as much as is stored, and slows down appends
// meanwhile; the engine does the same by itself little by little. It looks at
// ctx between parts of the work.
func (db *DB) Compact(ctx context.Context) error {
	if err := db.compact(ctx); err != nil {
		return fmt.Errorf("leveldb: compact %q: %w", db.name, err)
	}
	return nil
}

func (db *DB) compact(ctx context.Context) error {
	if err := db.sweep(ctx); err != nil {
		return err
	}
	next, err := db.compactRange(ctx, util.Range{Limit: []byte{tagEvent}})
	if err != nil {
		return err
	}
	step := next/compactSteps + 1
	for number := uint64(0); number < next; number += step {
		r := util.Range{Start: appendEventKey(nil, number, 0), Limit: appendEventKey(nil, number+step, 0)}
		if _, err = db.compactRange(ctx, r); err != nil {
			return err
		}
	}
	_, err = db.compactRange(ctx, util.Range{Start: []byte{tagEvent + 1}})
	return err
}

// compactRange compacts a range of keys. It returns the number that the next new
// persistence ID gets.
func (db *DB) compactRange(ctx context.Context, r util.Range) (next uint64, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	e, err := db.acquire(true)
	if err != nil {
		return 0, err
	}
	defer db.release()
	if err := e.db.CompactRange(r); err != nil {
		return 0, e.guard.explain(err)
	}
	return e.nextNumber.Load(), nil
}
