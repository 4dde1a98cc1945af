// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projectiontest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/projection"
	"github.com/refold-io/refold/projection/projectiontest"
)

// double is a store whose calls a test may replace.
type double struct {
	*projectiontest.Table
	load  func(ctx context.Context, name string) ([]projection.Position, error)
	save  func(ctx context.Context, m projection.Move) error
	reset func(ctx context.Context, name string) error
	apply func(ctx context.Context, m projection.Move, f handle) error
}

type handle = func(ctx context.Context, tx *projectiontest.Rows) error

func newDouble() *double {
	d := &double{Table: new(projectiontest.Table)}
	d.load, d.save, d.reset, d.apply = d.Table.Load, d.Table.Save, d.Table.Reset, d.Table.Apply
	return d
}

func (d *double) Load(ctx context.Context, name string) ([]projection.Position, error) {
	return d.load(ctx, name)
}
func (d *double) Save(ctx context.Context, m projection.Move) error { return d.save(ctx, m) }
func (d *double) Reset(ctx context.Context, name string) error      { return d.reset(ctx, name) }
func (d *double) Apply(ctx context.Context, m projection.Move, f handle) error {
	return d.apply(ctx, m, f)
}

// force stores positions, whatever positions are stored.
func (d *double) force(ctx context.Context, name string, to []projection.Position) error {
	stored, err := d.Table.Load(ctx, name)
	if err != nil {
		return err
	}
	return d.Table.Save(ctx, projection.Move{Projection: name, From: stored, To: to})
}

// recorder is a projectiontest.T that records whether the case failed.
type recorder struct {
	*testing.T
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	runtime.Goexit()
}
func (r *recorder) Logf(string, ...any) {}

// fails reports whether a case detects a fault.
func fails(t *testing.T, c projectiontest.Case) bool {
	t.Helper()
	r := &recorder{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(r)
	}()
	<-done
	return r.failed
}

// bugs are stores with one fault each, and the cases that must detect it.
var bugs = []struct {
	name  string
	finds []string
	plant func(d *double)
}{
	{"returns positions of unknown projections", []string{"LoadNothing", "ResetNothing"}, func(d *double) {
		d.load = func(ctx context.Context, name string) ([]projection.Position, error) {
			p, err := d.Table.Load(ctx, name)
			if len(p) == 0 && err == nil {
				p = make([]projection.Position, 1)
			}
			return p, err
		}
	}},
	{"stores first positions repeatedly", []string{"SaveFirst", "SaveOneBegins", "ApplyFenced"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			if len(m.From) == 0 {
				return d.force(ctx, m.Projection, m.To)
			}
			return d.Table.Save(ctx, m)
		}
		d.apply = func(ctx context.Context, m projection.Move, f handle) error {
			if len(m.From) == 0 {
				m.From, _ = d.Table.Load(ctx, m.Projection)
			}
			return d.Table.Apply(ctx, m, f)
		}
	}},
	{"does not move", []string{"SaveMoves", "SurvivesReopen"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			if len(m.From) > 0 {
				return nil
			}
			return d.Table.Save(ctx, m)
		}
	}},
	{"ignores From", []string{"SaveStale", "SaveOneWinner", "SaveIsAtomic", "ResetFences"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			if len(m.From) == 0 {
				return d.Table.Save(ctx, m)
			}
			return d.force(ctx, m.Projection, m.To)
		}
	}},
	{"moves each position separately", []string{"SaveIsAtomic"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			if len(m.From) != len(m.To) || len(m.From) < 2 {
				return d.Table.Save(ctx, m)
			}
			for i := range m.From {
				if err := d.Table.Save(ctx, projection.Move{Projection: m.Projection, From: m.From[i : i+1], To: m.To[i : i+1]}); err != nil {
					return err
				}
			}
			return nil
		}
	}},
	{"cannot divide ranges", []string{"SaveDivides"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			if len(m.From) > 0 && len(m.From) != len(m.To) {
				return projection.ErrFenced
			}
			return d.Table.Save(ctx, m)
		}
	}},
	{"fences a move to the same position", []string{"SaveSame"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			if slices.Equal(m.From, m.To) {
				return projection.ErrFenced
			}
			return d.Table.Save(ctx, m)
		}
	}},
	{"keeps the slices", []string{"SaveRetainsNoSlices"}, func(d *double) {
		kept := make(map[string][]projection.Position)
		d.save = func(ctx context.Context, m projection.Move) error {
			kept[m.Projection] = m.To
			return d.Table.Save(ctx, m)
		}
		d.load = func(_ context.Context, name string) ([]projection.Position, error) { return kept[name], nil }
	}},
	{"does not store the mark", []string{"ResetMarks", "ResetFences"}, func(d *double) {
		d.reset = func(ctx context.Context, name string) error {
			stored, err := d.Table.Load(ctx, name)
			if err != nil || len(stored) == 0 {
				return err
			}
			for i := range stored {
				stored[i].Offset = ""
			}
			return d.force(ctx, name, stored)
		}
	}},
	{"keeps the offset in a reset", []string{"ResetMarks"}, func(d *double) {
		d.reset = func(ctx context.Context, name string) error {
			stored, err := d.Table.Load(ctx, name)
			if err != nil || len(stored) == 0 {
				return err
			}
			for i := range stored {
				stored[i].Clear = true
			}
			return d.force(ctx, name, stored)
		}
	}},
	{"does not store claims", []string{"ResetClaimed"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			m.To = slices.Clone(m.To)
			for i := range m.To {
				m.To[i].Claim = ""
			}
			return d.Table.Save(ctx, m)
		}
	}},
	{"stores claims only with the mark", []string{"ResetClaimed"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			m.To = slices.Clone(m.To)
			for i := range m.To {
				if !m.To[i].Clear {
					m.To[i].Claim = ""
				}
			}
			return d.Table.Save(ctx, m)
		}
	}},
	{"compares names without case and trailing spaces", []string{"NamesApart"}, func(d *double) {
		fold := func(name string) string { return strings.TrimSpace(strings.ToLower(name)) }
		d.load = func(ctx context.Context, name string) ([]projection.Position, error) {
			return d.Table.Load(ctx, fold(name))
		}
		d.save = func(ctx context.Context, m projection.Move) error {
			m.Projection = fold(m.Projection)
			return d.Table.Save(ctx, m)
		}
	}},
	{"truncates offsets", []string{"Offsets"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			m.To = slices.Clone(m.To)
			for i := range m.To {
				m.To[i].Offset = m.To[i].Offset[:min(len(m.To[i].Offset), 63)]
			}
			return d.Table.Save(ctx, m)
		}
	}},
	{"ignores the context", []string{"ContextEnded"}, func(d *double) {
		d.load = func(ctx context.Context, name string) ([]projection.Position, error) {
			return d.Table.Load(context.WithoutCancel(ctx), name)
		}
	}},
	{"saves after the end of the context", []string{"ContextEnded"}, func(d *double) {
		d.save = func(ctx context.Context, m projection.Move) error {
			_ = d.Table.Save(context.WithoutCancel(ctx), m)
			return ctx.Err()
		}
	}},
	{"saves the position only", []string{"ApplyBoth", "ApplyFirst"}, func(d *double) {
		d.apply = func(ctx context.Context, m projection.Move, _ handle) error { return d.Table.Save(ctx, m) }
	}},
	{"position outside the transaction, before it", []string{"ApplyNeither", "ApplyContextEnds", "ApplyPanics"}, func(d *double) {
		d.apply = func(ctx context.Context, m projection.Move, f handle) error {
			if err := d.Table.Save(ctx, m); err != nil {
				return err
			}
			return d.Table.Apply(ctx, projection.Move{Projection: m.Projection, From: m.To, To: m.To}, f)
		}
	}},
	{"position outside the transaction, after it", []string{"ApplyFenced", "ApplyOneWinner"}, func(d *double) {
		d.apply = func(ctx context.Context, m projection.Move, f handle) error {
			stored, err := d.Table.Load(ctx, m.Projection)
			if err != nil {
				return err
			}
			if err := d.Table.Apply(ctx, projection.Move{Projection: m.Projection, From: stored, To: stored}, f); err != nil {
				return err
			}
			return d.Table.Save(ctx, m)
		}
	}},
	{"hides the error of f", []string{"ApplyNeither"}, func(d *double) {
		d.apply = func(ctx context.Context, m projection.Move, f handle) error {
			err := d.Table.Apply(ctx, m, f)
			if err != nil && !errors.Is(err, projection.ErrFenced) {
				return fmt.Errorf("rolled back: %v", err) //nolint:errorlint // the bug
			}
			return err
		}
	}},
	{"swallows panics", []string{"ApplyPanics"}, func(d *double) {
		d.apply = func(ctx context.Context, m projection.Move, f handle) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = fmt.Errorf("panic: %v", v)
				}
			}()
			return d.Table.Apply(ctx, m, f)
		}
	}},
	{"does not return ErrRefused", []string{"ApplyFailsInside"}, func(d *double) {
		d.apply = func(ctx context.Context, m projection.Move, f handle) error {
			calls := 0
			d.Fault = func(_ context.Context, at projectiontest.Step) error {
				if at == projectiontest.BeforeAdd {
					calls++
				}
				if at == projectiontest.BeforeCommit && strings.HasPrefix(m.Projection, "ApplyFailsInside") && calls > 0 {
					return errors.New("rolled back")
				}
				return nil
			}
			return d.Table.Apply(ctx, m, f)
		}
	}},
}

// Each case detects the stores with the faults that it must find.
func TestCasesFindBugs(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, bug := range bugs {
		plant := func() *double {
			d := newDouble()
			bug.plant(d)
			return d
		}
		cases := projectiontest.Cases(projectiontest.Config{
			Open:   func(projectiontest.T) projection.Store { return plant() },
			Reopen: func(_ projectiontest.T, store projection.Store) projection.Store { return store },
		})
		cases = append(cases, projectiontest.TxCases(txConfig(func() projection.TxStore[*projectiontest.Rows] { return plant() }))...)
		for _, c := range cases {
			if !slices.Contains(bug.finds, c.Name) {
				found[c.Name] = found[c.Name] || false
				continue
			}
			found[c.Name] = true
			detected := false
			for range 100 { // a fault of concurrent calls does not show in each order of the calls
				if detected = fails(t, c); detected {
					break
				}
			}
			if !detected {
				t.Errorf("%s does not detect the store with the fault %q", c.Name, bug.name)
			}
		}
	}
	for name, ok := range found {
		if !ok {
			t.Errorf("the list of faulty stores has no store for case %s", name)
		}
	}
}
