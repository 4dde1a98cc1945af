// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"cmp"
	"context"
	"crypto/rand"
	"testing"

	"github.com/refold-io/refold/snapshot"
)

// Config describes the store to check and its capabilities.
type Config struct {
	// Open opens a store. Required. It need not be empty. The case that asked for it closes it.
	Open func(t T) snapshot.Store

	// Reopen returns a store with the same contents, after it was closed or, preferably, after a
	// crash. It is called when no call is in progress. Optional; without it the contents are
	// assumed to be lost.
	Reopen func(t T, store snapshot.Store) snapshot.Store

	// Damage makes a stored snapshot unreadable by changing the data outside of the store.
	// Optional; without it the cases of damaged snapshots are left out.
	Damage func(t T, store snapshot.Store, m snapshot.Metadata)

	// MaxPayload is the size of the largest payload in bytes that is tried. It should be near the
	// limit that the store documents. Defaults to 4 MiB.
	MaxPayload int
}

// T is the part of *testing.T that the cases use.
type T interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(f func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// Fatalf does not return.
	Fatalf(format string, args ...any)
}

var _ T = (*testing.T)(nil)

// Case is one rule of the contract.
type Case struct {
	// Name is made of letters only and stays the same from release to release.
	Name string
	// Rule is the checked rule.
	Rule string

	cfg   Config
	needs capability
	check func(p *probe)
}

type capability int

const (
	always capability = iota
	reopens
	damages
)

func (c capability) String() string {
	switch c {
	case reopens:
		return "Reopen"
	case damages:
		return "Damage"
	default:
		return "Open"
	}
}

// Run runs all cases that the Config allows, as parallel subtests.
func Run(t *testing.T, c Config) {
	t.Helper()
	if c.Open == nil {
		t.Fatalf("snapshottest: Config.Open is required")
	}
	for _, each := range all(c) {
		if !c.claims(each.needs) {
			t.Logf("%s is not run: Config.%v is not set", each.Name, each.needs)
		}
	}
	for _, each := range Cases(c) {
		t.Run(each.Name, func(t *testing.T) {
			t.Parallel()
			each.Run(t)
		})
	}
}

// Cases returns the cases that Run would run, for a caller that runs them in its own way.
func Cases(c Config) []Case {
	var cases []Case
	for _, each := range all(c) {
		if c.claims(each.needs) {
			cases = append(cases, each)
		}
	}
	return cases
}

func (c Config) claims(needs capability) bool {
	switch needs {
	case reopens:
		return c.Reopen != nil
	case damages:
		return c.Damage != nil
	default:
		return true
	}
}

// all returns every case, in the order in which they are best read.
func all(c Config) []Case {
	c.MaxPayload = cmp.Or(c.MaxPayload, 4<<20)
	var cases []Case
	for _, part := range [][]Case{loadCases(), boundsCases(), saveCases(), deleteCases(), listCases(), idCases(), callCases(), reopenCases(), damageCases()} {
		for _, each := range part {
			each.cfg = c
			cases = append(cases, each)
		}
	}
	return cases
}

// Run runs the case on its own store.
func (c Case) Run(t T) {
	t.Helper()
	p := &probe{T: t, cfg: c.cfg, id: c.Name + "|" + rand.Text()}
	p.store = c.cfg.Open(t)
	p.Cleanup(func() {
		if err := p.store.Close(); err != nil {
			p.Errorf("Close: %v", err)
		}
	})
	t.Logf("rule: %s", c.Rule)
	c.check(p)
}
