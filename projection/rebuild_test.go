// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

// damage damages a read model, so that a test detects whether it was rebuilt.
func damage(t *testing.T, table *projectiontest.Table) {
	t.Helper()
	at := stored(t, table)
	err := table.Apply(t.Context(), projection.Move{Projection: "sums", From: at, To: at}, func(ctx context.Context, tx *projectiontest.Rows) error {
		return tx.Add(ctx, "wrong", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRebuildWhileRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(5, 40)
		cfg := config(s, table)
		cfg.Workers = 4
		p := create(t, cfg)
		if err := p.Rebuild(t.Context()); err != nil { // no position is stored yet
			t.Error(err)
		}
		stop := start(t, p)
		synctest.Wait()
		damage(t, table)
		began := time.Now()
		if err := p.Rebuild(t.Context()); err != nil {
			t.Error(err)
		}
		s.fill(5, 10)
		synctest.Wait()
		wantSums(t, table.Rows(), s.sums)
		if took := time.Since(began); took != 0 {
			t.Errorf("the rebuild started after %v, want 0", took)
		}
		if got := p.Status(); got.Restarts != 0 || got.State != projection.Running {
			t.Errorf("status %+v, want no failure", got)
		}
		wantStopped(t, stop)
	})
}

// An idle projection in another process starts a requested rebuild.
func TestRebuildInAnotherProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(5, 40)
		stop := start(t, create(t, config(s, table)))
		synctest.Wait()
		damage(t, table)
		if err := create(t, config(s, table)).Rebuild(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(30 * time.Second)
		wantSums(t, table.Rows(), s.sums)
		wantStopped(t, stop)
	})
}

// If the process crashes at any point of a rebuild, the next Run completes the rebuild.
func TestRebuildThroughFaults(t *testing.T) {
	t.Parallel()
	for _, step := range append([]projectiontest.Step{projectiontest.AfterReset}, steps...) {
		for n, hit := int64(1), true; hit; n++ {
			synctest.Test(t, func(t *testing.T) {
				s, table := newSource(t), &projectiontest.Table{}
				s.fill(5, 20)
				cfg := config(s, table)
				catchUp(t, cfg)
				damage(t, table)
				handler := sums(table)
				handler.Batch = 6
				cfg.Handler = handler
				ctx, crash := context.WithCancel(t.Context())
				done := plant(table, step, n, crash)
				p := create(t, cfg)
				_ = p.Rebuild(ctx)
				_ = p.CatchUp(ctx)
				crash()
				hit = done.Load()
				table.Fault = nil
				catchUp(t, cfg)
				wantSums(t, table.Rows(), s.sums)
			})
		}
	}
}

// Without transactions the read model is cleared before the mark is removed.
func TestRebuildAtLeastOnce(t *testing.T) {
	t.Parallel()
	for _, step := range []projectiontest.Step{projectiontest.BeforeSave, projectiontest.AfterSave, projectiontest.BeforeReset, projectiontest.AfterReset, projectiontest.BeforeLoad} {
		for n := int64(1); n <= 3; n++ {
			synctest.Test(t, func(t *testing.T) {
				s, table, m := newSource(t), &projectiontest.Table{}, newModel()
				s.fill(5, 20)
				cfg := config(s, table)
				clears := 0
				cfg.Handler = projection.AtLeastOnce[event]{Store: table, Handle: m.handle, Clear: func(ctx context.Context) error {
					if clears++; clears == 1 {
						return errPlanted // Clear is tried again
					}
					return m.clear(ctx)
				}}
				catchUp(t, cfg)
				m.sums["wrong"] = 1
				ctx, crash := context.WithCancel(t.Context())
				plant(table, step, n, crash)
				p := create(t, cfg)
				requestErr := p.Rebuild(ctx)
				_ = p.CatchUp(ctx)
				crash()
				table.Fault = nil
				catchUp(t, cfg)
				if requestErr != nil && m.sums["wrong"] == 1 {
					delete(m.sums, "wrong") // the rebuild was not requested
				}
				wantSums(t, m.sums, s.sums)
			})
		}
	}
}

func TestRebuildNeedsClear(t *testing.T) {
	t.Parallel()
	s, table := newSource(t), &projectiontest.Table{}
	s.fill(1, 3)
	handler := sums(table)
	handler.Clear = nil
	cfg := config(s, table)
	cfg.Handler = handler
	p := catchUp(t, cfg)
	if err := p.Rebuild(t.Context()); !errors.Is(err, projection.ErrNoClear) {
		t.Errorf("Rebuild: %v, want ErrNoClear", err)
	}
	if err := create(t, config(s, table)).Rebuild(t.Context()); err != nil { // another program requests a rebuild
		t.Error(err)
	}
	if err := p.Run(t.Context()); !errors.Is(err, projection.ErrNoClear) {
		t.Errorf("Run: %v, want ErrNoClear", err)
	}
	wantSums(t, table.Rows(), s.sums)
}

// A rebuild waits for Resume, because its Clear is a handler.
func TestRebuildInAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, table := newSource(t), &projectiontest.Table{}
		s.fill(1, 3)
		p := create(t, config(s, table))
		stop := start(t, p)
		synctest.Wait()
		if err := p.Pause(t.Context()); err != nil {
			t.Error(err)
		}
		damage(t, table)
		if err := p.Rebuild(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if table.Rows()["wrong"] != 1 {
			t.Error("the read model was cleared during the pause")
		}
		p.Resume()
		synctest.Wait()
		wantSums(t, table.Rows(), s.sums)
		wantStopped(t, stop)
	})
}
