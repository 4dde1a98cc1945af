// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshottest_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/refold-io/refold/internal/testkit/recorder"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/snapshot/snapshottest"
)

// config gives out a double in which something was broken.
func config(breakIt func(d *double)) snapshottest.Config {
	return snapshottest.Config{
		Open: func(snapshottest.T) snapshot.Store {
			d := newDouble()
			breakIt(d)
			return d
		},
		Reopen: func(_ snapshottest.T, store snapshot.Store) snapshot.Store { return store },
		Damage: func(_ snapshottest.T, store snapshot.Store, m snapshot.Metadata) {
			store.(*double).damage(m) //nolint:errcheck // it is one
		},
	}
}

func TestSuitePassesOnAGoodStore(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, config(func(*double) {}))
}

// Each case fails on the fault that it is there to find.
func TestEachCaseFindsItsFault(t *testing.T) {
	t.Parallel()
	faults := faults()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(fault)
			switch name {
			case "Reopened":
				c.Reopen = func(snapshottest.T, snapshot.Store) snapshot.Store { return newDouble() }
			case "ReopenedReplaced":
				c.Reopen = reopenAsFirstSaved
			}
			for _, each := range snapshottest.Cases(c) {
				if each.Name != name {
					continue
				}
				failures := recorder.Find(t, func(tb testing.TB) { tb.Helper(); each.Run(tb) })
				if len(failures) == 0 {
					t.Errorf("the case passes on a store that breaks its rule: %s", each.Rule)
				}
				for _, failure := range failures {
					t.Log(failure)
				}
				return
			}
			t.Errorf("there is no case of this name")
		})
	}
	for _, each := range snapshottest.Cases(config(nil)) {
		if faults[each.Name] == nil {
			t.Errorf("no fault is planted for the case %s", each.Name)
		}
	}
}

// reopenAsFirstSaved returns a store that a replacement never reached.
func reopenAsFirstSaved(t snapshottest.T, store snapshot.Store) snapshot.Store {
	d := newDouble()
	firstWins(d)
	for _, s := range store.(*double).saved { //nolint:errcheck // it is one
		if err := d.Save(t.Context(), s); err != nil {
			t.Fatalf("Save: %v", err)
		}
	}
	return d
}

func TestCasesWithoutTheirCapabilityAreLeftOut(t *testing.T) {
	t.Parallel()
	all := names(snapshottest.Cases(config(nil)))
	c := config(nil)
	c.Reopen = nil
	if got, want := names(snapshottest.Cases(c)), slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return name == "Reopened" || name == "ReopenedReplaced" || name == "ReopenedDeleted"
	}); !slices.Equal(got, want) {
		t.Errorf("without Reopen: %v, want %v", got, want)
	}
	c = config(nil)
	c.Damage = nil
	if got, want := names(snapshottest.Cases(c)), slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return name == "DamagedNewest" || name == "DamagedAll" || name == "DamagedReplaced"
	}); !slices.Equal(got, want) {
		t.Errorf("without Damage: %v, want %v", got, want)
	}
}

func names(cases []snapshottest.Case) []string {
	set := make(map[string]bool)
	for _, c := range cases {
		set[c.Name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func TestTheReferencePasses(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, snapshottest.Config{
		Open: func(snapshottest.T) snapshot.Store { return new(inmem.SnapshotStore) },
	})
}
