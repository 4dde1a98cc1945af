// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A type has a store of its own: its events are there and not in the store of the runtime.
func TestStoreOfAType(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		shared, err := inmem.Open()
		if err != nil {
			t.Fatal(err)
		}
		for run := 1; run <= 2; run++ {
			rt, err := eventsourcing.Open(eventsourcing.Config{Store: shared})
			if err != nil {
				t.Fatal(err)
			}
			tallies, err := eventsourcing.HostWith(rt, tallyType(), eventsourcing.HostOptions{Store: db})
			if err != nil {
				t.Fatal(err)
			}
			if n, asked := eventsourcing.Ask(within(t), tallies.Ref("a"), count{By: 5}); n != 5*run || asked != nil {
				t.Errorf("run %d: the reply is %d, %v, want %d", run, n, asked, 5*run)
			}
			closeRuntime(t, rt)
		}
		expectTallies(t, db, "tally|a")
		expectTallies(t, shared)
	})
}

// expectTallies compares the persistence IDs of tallies in a store.
func expectTallies(tb testing.TB, db store.DB, want ...string) {
	tb.Helper()
	lister, ok := journal.As[journal.IDLister](db.Journal())
	if !ok {
		tb.Fatal("the journal cannot list its IDs")
	}
	var ids []string
	for id, err := range lister.PersistenceIDs(tb.Context(), "tally|") {
		if err != nil {
			tb.Fatal(err)
		}
		ids = append(ids, id)
	}
	if !slices.Equal(ids, want) {
		tb.Errorf("the store holds %q, want %q", ids, want)
	}
}

// Each node finds the events in the store of the type, also after a crash. A proxy lists them.
func TestStoreOfAShardedType(t *testing.T) {
	t.Parallel()
	db, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	f, ctx := startNodes(t, db, 0), within(t)
	own, err := inmem.Open()
	if err != nil {
		t.Fatal(err)
	}
	opts := sharding.Options{Shards: 10, Role: "host", Host: eventsourcing.HostOptions{Store: own}}
	var regions []*sharding.Region[tally]
	for i := range 3 {
		n := f.add(func(cfg *cluster.Config) {
			if i < 2 {
				cfg.Roles = []string{"host"}
			}
		})
		r, err := sharding.Host(ctx, f.nodes[n], f.runtimes[n], tallyType(), opts)
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	var want []string
	for id := range 10 {
		want = append(want, fmt.Sprint(id))
		if n, err := askAgain(ctx, regions[2].Ref(fmt.Sprint(id)), count{By: 1}); n < 1 || err != nil {
			t.Fatalf("entity %d replied %d, %v, want 1", id, n, err)
		}
	}
	f.crash(f.nodes[1])
	for id := range 10 {
		if n, err := askAgain(ctx, regions[2].Ref(fmt.Sprint(id)), count{}); n < 1 || err != nil {
			t.Errorf("entity %d has the count %d, %v, want 1", id, n, err)
		}
	}
	expectTallies(t, db)
	for _, r := range []*sharding.Region[tally]{regions[0], regions[2]} {
		var ids []string
		for id, err := range r.IDs(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("the IDs are %q, want %q", ids, want)
		}
	}
}
