// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest

import (
	"cmp"
	"crypto/rand"
	"slices"
	"testing"

	"github.com/refold-io/refold/snapshot"
)

// Config describes the store to check and its capabilities.
type Config struct {
	// Open opens a store, which need not be empty. Each case closes its store. Required.
	Open func(tb testing.TB) snapshot.Store

	// Reopen returns a store with the same contents, after it was closed or, preferably, after a
	// crash. It is called when no call is in progress. Optional. Without Reopen, the contents are
	// assumed to be lost.
	Reopen func(tb testing.TB, store snapshot.Store) snapshot.Store

	// Damage makes a stored snapshot unreadable by changing the data outside of the store.
	// Optional. Without Damage, the cases of damaged snapshots are left out.
	Damage func(tb testing.TB, store snapshot.Store, m snapshot.Metadata)

	// Local claims that the store is local to one node, see snapshot.Local.
	Local bool

	// MaxPayload is the size of the largest payload in bytes that is tried. It should be near the
	// limit that the store documents. Defaults to 4 MiB.
	MaxPayload int
}

type check struct {
	name  string
	rule  string
	needs capability
	run   func(p *probe)
}

// capability names the field of Config that claims a capability. Not every store has all of them.
type capability string

const (
	always  capability = "Config.Open"
	reopens capability = "Config.Reopen"
	damages capability = "Config.Damage"
)

// Run runs all checks that the Config allows, as parallel subtests.
func Run(t *testing.T, c Config) {
	t.Helper()
	if c.Open == nil {
		t.Fatalf("snapshottest: Config.Open is required")
	}
	claimed := claims(c)
	for _, each := range checks() {
		if !claimed[each.needs] {
			t.Logf("not checked: %s: needs %s", each.name, each.needs)
			continue
		}
		t.Run(each.name, func(t *testing.T) {
			t.Parallel()
			each.runOn(t, c)
		})
	}
}

func claims(c Config) map[capability]bool {
	return map[capability]bool{always: true, reopens: c.Reopen != nil, damages: c.Damage != nil}
}

func checks() []check {
	return slices.Concat(loadChecks(), boundsChecks(), saveChecks(), deleteChecks(), listChecks(), idChecks(), callChecks(), reopenChecks(), damageChecks())
}

func (c check) runOn(tb testing.TB, cfg Config) {
	tb.Helper()
	cfg.MaxPayload = cmp.Or(cfg.MaxPayload, 4<<20)
	p := &probe{TB: tb, cfg: cfg, id: c.name + "|" + rand.Text(), store: cfg.Open(tb)}
	p.Cleanup(func() {
		if err := p.store.Close(); err != nil {
			p.Errorf("Close: %v", err)
		}
	})
	tb.Logf("rule: %s", c.rule)
	c.run(p)
}
