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

// partingTally returns a tally that counts 1,000 and saves a snapshot before it stops.
func partingTally() eventsourcing.Type[tally, counted] {
	typ := tallyType()
	typ.Signals = eventsourcing.Signals(eventsourcing.OnSignal(
		func(_ *tally, ctx *eventsourcing.Context[tally, counted, eventsourcing.None], _ eventsourcing.Stopping) eventsourcing.Effect[tally, counted, eventsourcing.None] {
			return ctx.Persist(counted{1000}).SaveSnapshot()
		}))
	return typ
}

// An entity persists an event and saves a snapshot before its runtime ends.
func TestStoppingSignal(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		for run := range 3 {
			rt := openRuntime(t, db)
			tallies, err := eventsourcing.Host(rt, partingTally())
			if err != nil {
				t.Fatal(err)
			}
			want := 1001*run + 1
			if n, asked := eventsourcing.Ask(within(t), tallies.Ref("a"), count{By: 1}); n != want || asked != nil {
				t.Errorf("run %d: the reply is %d, %v, want %d", run, n, asked, want)
			}
			closeRuntime(t, rt)
			folded, err := eventsourcing.Fold(within(t), openRuntime(t, db), tallyType(), "a", eventsourcing.FoldOptions[counted]{})
			if err != nil || folded.SnapshotNr != folded.SequenceNr {
				t.Errorf("run %d: the last snapshot is at %d, %v, want %d", run, folded.SnapshotNr, err, folded.SequenceNr)
			}
		}
	})
}

// Entities persist an event when their shards move, and the new home has read it.
func TestStoppingSignalOnMove(t *testing.T) {
	t.Parallel()
	f := threeNodes(t)
	ctx := within(t)
	var regions []*sharding.Region[tally]
	for i, node := range f.nodes {
		r, err := sharding.Host(ctx, node, f.runtimes[i], partingTally(), sharding.Options{Shards: 10})
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	for id := range 20 {
		if n, err := eventsourcing.Ask(ctx, regions[0].Ref(fmt.Sprint(id)), count{By: 1}); n != 1 || err != nil {
			t.Fatalf("the reply of tally %d is %d, %v, want 1", id, n, err)
		}
	}
	state, err := regions[1].State(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err = regions[1].Drain(ctx); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for _, shard := range state.Shards {
		for _, id := range shard.Entities {
			moved++
			if n, err := eventsourcing.Ask(ctx, regions[1].Ref(id), count{By: 0}); n != 1001 || err != nil {
				t.Errorf("the reply of tally %s after the move is %d, %v, want 1001", id, n, err)
			}
		}
	}
	if moved == 0 {
		t.Error("the drained node hosted no tally")
	}
}
