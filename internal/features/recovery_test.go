// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// The signal of a recovery describes it, a query reports the status without a start, and one entity is
// recovered to an earlier event.
func TestRecoveryStatus(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		ctx := within(t)
		recovered := make(chan eventsourcing.RecoveryCompleted, 10)
		typ := tallyType()
		typ.Snapshots.Every = 2
		typ.Signals = eventsourcing.Signals(eventsourcing.OnSignal(
			func(_ *tally, ctx *eventsourcing.Context[tally, counted, eventsourcing.None], s eventsourcing.RecoveryCompleted) eventsourcing.Effect[tally, counted, eventsourcing.None] {
				recovered <- s
				return ctx.Effect
			}))
		for run, want := range []eventsourcing.RecoveryCompleted{{}, {SequenceNr: 3, SnapshotNr: 2, Events: 1}, {SequenceNr: 1, Events: 1}} {
			rt := openRuntime(t, db)
			opts := eventsourcing.HostOptions{}
			if run == 2 {
				opts.RecoveryOf = func(string) eventsourcing.Recovery { return eventsourcing.Recovery{UpTo: 1} }
			}
			tallies, err := eventsourcing.HostWith(rt, typ, opts)
			if err != nil {
				t.Fatal(err)
			}
			if p := tallies.Presence("a"); p != eventsourcing.Absent {
				t.Errorf("run %d: the tally is %v before its start, want absent", run, p)
			}
			if err = tallies.Start(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			if got := <-recovered; got != want {
				t.Errorf("run %d: the recovery is %+v, want %+v", run, got, want)
			}
			for range 3 {
				if run == 0 {
					if _, err = eventsourcing.Ask(ctx, tallies.Ref("a"), count{By: 1}); err != nil {
						t.Fatal(err)
					}
				}
			}
			closeRuntime(t, rt)
		}
	})
}

// Each node, and a node that hosts no entities, reports which entities of the cluster are in memory.
func TestPresenceOfShardedEntities(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		f, ctx := startNodes(t, db, 3), within(t)
		var regions []*sharding.Region[tally]
		for i, node := range f.nodes {
			r, err := sharding.Host(ctx, node, f.runtimes[i], tallyType(), sharding.Options{Shards: 10, ProxyOnly: i == 2})
			if err != nil {
				t.Fatal(err)
			}
			if err = r.AwaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			regions = append(regions, r)
		}
		for id := range 10 {
			for want := range 2 { // before and after its start
				for node, r := range regions {
					got, err := r.Presence(ctx, fmt.Sprint(id))
					if err != nil || got != []eventsourcing.Presence{eventsourcing.Absent, eventsourcing.Running}[want] {
						t.Errorf("node %d reports that entity %d is %v, %v, started: %t", node, id, got, err, want == 1)
					}
				}
				if _, err := eventsourcing.Ask(ctx, regions[2].Ref(fmt.Sprint(id)), count{By: 1}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
