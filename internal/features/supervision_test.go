// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// fragileTally returns a tally whose handler panics when it counts 13.
func fragileTally() eventsourcing.Type[tally, counted] {
	typ := tallyType()
	typ.Commands = eventsourcing.Commands(eventsourcing.On("count",
		func(t *tally, ctx *eventsourcing.Context[tally, counted, int], c count) eventsourcing.Decision[tally, counted, int] {
			if c.By == 13 {
				panic("13")
			}
			return t.count(ctx, c)
		}))
	return typ
}

// A failed entity withdraws its type from the runtime, which can host the type again.
func TestSupervision(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		ctx, rt := within(t), openRuntime(t, db)
		for run := 1; run <= 2; run++ {
			tallies, err := eventsourcing.HostWith(rt, fragileTally(), eventsourcing.HostOptions{
				Supervise: func(error) eventsourcing.Directive { return eventsourcing.Escalate },
			})
			if err != nil {
				t.Fatal(err)
			}
			if n, asked := eventsourcing.Ask(ctx, tallies.Ref("a"), count{By: 1}); n != run || asked != nil {
				t.Errorf("the reply is %d, %v, want %d", n, asked, run)
			}
			if _, err = eventsourcing.Ask(ctx, tallies.Ref("b"), count{By: 13}); err == nil {
				t.Error("a tally that panics replied without an error")
			}
			<-tallies.Done()
			if _, ok := errors.AsType[*eventsourcing.PanicError](tallies.Err()); !ok {
				t.Errorf("the reason is %v, want a PanicError", tallies.Err())
			}
		}
	})
}

// A type is withdrawn from a running node: the other nodes host its entities. Then the node hosts it
// again.
func TestWithdrawnRegion(t *testing.T) {
	t.Parallel()
	f := threeNodes(t)
	ctx := within(t)
	host := func(i int) *sharding.Region[tally] {
		r, err := sharding.Host(ctx, f.nodes[i], f.runtimes[i], fragileTally(), sharding.Options{Shards: 10})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	regions := []*sharding.Region[tally]{host(0), host(1), host(2)}
	counts := func(want int) {
		t.Helper()
		for i, r := range regions {
			for id := range 10 {
				if n, err := eventsourcing.Ask(ctx, r.Ref(fmt.Sprint(id)), count{By: 1}); err != nil || n != want+i {
					t.Errorf("the reply of tally %d to node %d is %d, %v, want %d", id, i, n, err, want+i)
				}
			}
		}
	}
	counts(1)
	for i := range 2 { // node 0 runs the coordinator
		if err := regions[i].Close(ctx); err != nil {
			t.Fatal(err)
		}
		<-regions[i].Done()
		if _, hosted := f.runtimes[i].Resident()["tally"]; hosted {
			t.Errorf("the runtime of node %d still hosts the type", i)
		}
	}
	counts(4)
	regions[0], regions[1] = host(0), host(1)
	if err := regions[2].Close(ctx); err != nil {
		t.Fatal(err)
	}
	counts(7)
}
