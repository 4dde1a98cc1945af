// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest_test

import (
	"slices"
	"testing"

	"github.com/refold-io/refold/internal/testkit/recorder"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// config opens doubles with a planted fault.
func config(breakIt func(d *double)) snapshottest.Config {
	return snapshottest.Config{
		Open: func(testing.TB) snapshot.Store {
			d := newDouble()
			breakIt(d)
			return d
		},
		Reopen: func(_ testing.TB, store snapshot.Store) snapshot.Store { return store },
		Damage: func(_ testing.TB, store snapshot.Store, m snapshot.Metadata) {
			store.(*double).damage(m) //nolint:errcheck // it is one
		},
	}
}

func TestSuitePassesOnACorrectStore(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, config(func(*double) {}))
}

// Each check fails on a store with the fault that the check must find.
func TestChecksFindFaults(t *testing.T) {
	t.Parallel()
	faults := faults()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(fault)
			switch name {
			case "Reopened":
				c.Reopen = func(testing.TB, snapshot.Store) snapshot.Store { return newDouble() }
			case "ReopenedReplaced":
				c.Reopen = reopenAsFirstSaved
			}
			failures := recorder.Find(t, func(tb testing.TB) { tb.Helper(); snapshottest.RunOne(tb, c, name) })
			if len(failures) == 0 {
				t.Error("the check reports no failure for a store that breaks its rule")
			}
			for _, failure := range failures {
				t.Log(failure)
			}
		})
	}
	for _, name := range snapshottest.Names(config(nil)) {
		if faults[name] == nil {
			t.Errorf("faults has no fault for the check %s", name)
		}
	}
}

// reopenAsFirstSaved returns a store with the first version of each snapshot.
func reopenAsFirstSaved(t testing.TB, store snapshot.Store) snapshot.Store {
	d := newDouble()
	firstWins(d)
	for _, s := range store.(*double).saved { //nolint:errcheck // it is one
		if err := d.Save(t.Context(), s); err != nil {
			t.Fatalf("Save: %v", err)
		}
	}
	return d
}

func TestChecksWithoutCapabilityAreSkipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remove func(*snapshottest.Config)
		left   []string
	}{
		{func(c *snapshottest.Config) { c.Reopen = nil }, []string{"Reopened", "ReopenedReplaced", "ReopenedDeleted"}},
		{func(c *snapshottest.Config) { c.Damage = nil }, []string{"DamagedNewest", "DamagedAll", "DamagedReplaced"}},
	} {
		cfg := config(nil)
		want := slices.DeleteFunc(snapshottest.Names(cfg), func(name string) bool { return slices.Contains(c.left, name) })
		c.remove(&cfg)
		if got := snapshottest.Names(cfg); !slices.Equal(got, want) {
			t.Errorf("Names = %v, want %v", got, want)
		}
	}
}

func TestInMemoryStorePasses(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, snapshottest.Config{
		Open: func(testing.TB) snapshot.Store { return new(inmem.SnapshotStore) },
	})
}
