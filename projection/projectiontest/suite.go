// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projectiontest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/projection"
)

// Config describes the store to check.
type Config struct {
	// Open opens a store, which need not be empty. Required.
	Open func(t T) projection.Store
	// Reopen returns a store with the same contents, as another process would open it. Optional.
	// Without Reopen, the contents of a store are assumed to be lost.
	Reopen func(t T, store projection.Store) projection.Store
}

// T is the part of *testing.T that the cases use.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// Fatalf does not return.
	Fatalf(format string, args ...any)
}

var _ T = (*testing.T)(nil)

// Case is one rule of the contract.
type Case struct {
	// Name consists of letters and never changes.
	Name string
	// Rule is the checked rule.
	Rule string

	run func(t T)
}

// Run runs the case.
func (c Case) Run(t T) {
	t.Helper()
	t.Logf("rule: %s", c.Rule)
	c.run(t)
}

// Run runs all cases that the Config allows, as parallel subtests.
func Run(t *testing.T, c Config) {
	t.Helper()
	if c.Open == nil {
		t.Fatalf("projectiontest: Config.Open is required")
	}
	if c.Reopen == nil {
		t.Logf("SurvivesReopen is not run: Config.Reopen is not set")
	}
	run(t, Cases(c))
}

func run(t *testing.T, cases []Case) {
	t.Helper()
	for _, each := range cases {
		t.Run(each.Name, func(t *testing.T) {
			t.Parallel()
			each.Run(t)
		})
	}
}

type probe struct {
	T

	cfg   Config
	store projection.Store
	// name is the name of a projection that no other case uses.
	name string
}

func at(first, count int, offset journal.Offset) projection.Position {
	return projection.Position{Slices: journal.Slices{First: first, Count: count}, Offset: offset}
}

func marked(first, count int) projection.Position {
	p := at(first, count, "")
	p.Clear = true
	return p
}

type positions = []projection.Position

func (p *probe) move(from, to positions) projection.Move {
	return projection.Move{Projection: p.name, From: from, To: to}
}

func (p *probe) save(from, to positions) {
	p.Helper()
	if err := p.store.Save(p.Context(), p.move(from, to)); err != nil {
		p.Fatalf("Save of %v replacing %v: %v", to, from, err)
	}
}

func (p *probe) fenced(from, to positions) {
	p.Helper()
	if err := p.store.Save(p.Context(), p.move(from, to)); !errors.Is(err, projection.ErrFenced) {
		p.Errorf("Save of %v replacing %v: %v, want ErrFenced", to, from, err)
	}
}

func (p *probe) want(want ...projection.Position) {
	p.Helper()
	p.wantIn(p.store, p.name, want...)
}

func (p *probe) wantIn(store projection.Store, name string, want ...projection.Position) {
	p.Helper()
	got, err := store.Load(p.Context(), name)
	if err != nil {
		p.Errorf("Load: %v", err)
		return
	}
	if !slices.Equal(got, want) {
		p.Errorf("Load = %v, want %v", got, want)
	}
}
