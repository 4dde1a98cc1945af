// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projectiontest

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/refold-io/refold/projection"
)

// Table is a projection.TxStore in memory for tests. It contains positions, and a read model with a
// count for each key. It keeps its contents when a projection stops, so tests can simulate crashes.
// The zero value is ready to use.
type Table struct {
	// Fault is called at each step. An error ends the call of the Table. Several goroutines may call
	// Fault concurrently. Nil means no fault.
	Fault func(ctx context.Context, step Step) error

	mu        sync.Mutex // locked during a transaction
	positions projection.Memory
	rows      map[string]int64
}

// Step is a point at which a call to a Table can fail.
type Step string

// The steps at which a Table can fail. If a step whose name begins with "after" fails, the
// operation was executed and only its result is lost.
const (
	BeforeLoad   Step = "before load"
	BeforeSave   Step = "before save"
	AfterSave    Step = "after save"
	BeforeReset  Step = "before reset"
	AfterReset   Step = "after reset"
	BeforeBegin  Step = "before begin"
	BeforeAdd    Step = "before add"
	BeforeCommit Step = "before commit"
	AfterCommit  Step = "after commit"
)

// Rows is a transaction of a Table.
type Rows struct {
	table *Table
	rows  map[string]int64
	ended bool
}

var _ projection.TxStore[*Rows] = (*Table)(nil)

func (t *Table) fault(ctx context.Context, step Step) error {
	if t.Fault == nil {
		return nil
	}
	return t.Fault(ctx, step)
}

// Rows returns a copy of the read model.
func (t *Table) Rows() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.rows)
}

// Load implements projection.Store.
func (t *Table) Load(ctx context.Context, name string) ([]projection.Position, error) {
	if err := t.fault(ctx, BeforeLoad); err != nil {
		return nil, err
	}
	return t.positions.Load(ctx, name)
}

// Save implements projection.Store.
func (t *Table) Save(ctx context.Context, m projection.Move) error {
	if err := t.fault(ctx, BeforeSave); err != nil {
		return err
	}
	t.mu.Lock()
	err := t.positions.Save(ctx, m)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	return t.fault(ctx, AfterSave)
}

// Reset implements projection.Store.
func (t *Table) Reset(ctx context.Context, name string) error {
	if err := t.fault(ctx, BeforeReset); err != nil {
		return err
	}
	t.mu.Lock()
	err := t.positions.Reset(ctx, name)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	return t.fault(ctx, AfterReset)
}

// Apply implements projection.TxStore. Transactions are executed one after the other.
func (t *Table) Apply(ctx context.Context, m projection.Move, f func(ctx context.Context, tx *Rows) error) error {
	if err := t.fault(ctx, BeforeBegin); err != nil {
		return err
	}
	if err := t.apply(ctx, m, f); err != nil {
		return err
	}
	return t.fault(ctx, AfterCommit)
}

func (t *Table) apply(ctx context.Context, m projection.Move, f func(ctx context.Context, tx *Rows) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.expect(ctx, m); err != nil {
		return err
	}
	tx := &Rows{table: t, rows: maps.Clone(t.rows)}
	defer func() { tx.ended = true }()
	if err := f(ctx, tx); err != nil {
		return fmt.Errorf("projectiontest: apply: %w", err)
	}
	if err := t.fault(ctx, BeforeCommit); err != nil {
		return err
	}
	if err := t.positions.Save(ctx, m); err != nil {
		return err
	}
	t.rows = tx.rows
	return nil
}

// expect returns the error that a move would cause in Save.
func (t *Table) expect(ctx context.Context, m projection.Move) error {
	stored, err := t.positions.Load(ctx, m.Projection)
	if err != nil {
		return err
	}
	var trial projection.Memory
	if len(stored) > 0 {
		if err := trial.Save(ctx, projection.Move{Projection: m.Projection, To: stored}); err != nil {
			return err
		}
	}
	return trial.Save(ctx, m)
}

// Add adds to the count of a key.
func (r *Rows) Add(ctx context.Context, key string, n int64) error {
	if r.ended {
		return fmt.Errorf("%w: the transaction has ended", projection.ErrInvalid)
	}
	if err := r.table.fault(ctx, BeforeAdd); err != nil {
		return err
	}
	if r.rows == nil {
		r.rows = make(map[string]int64)
	}
	r.rows[key] += n
	return nil
}

// Get returns the count of a key.
func (r *Rows) Get(key string) int64 { return r.rows[key] }

// Clear removes all counts.
func (r *Rows) Clear() { r.rows = nil }
