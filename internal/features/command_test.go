// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A tally counts what it was told to count. Tests of several features use it.
type (
	tally struct{ N int }
	// count adds to the tally. The reply is the new value.
	count struct {
		eventsourcing.Command[tally, int]
		By int
	}
	counted struct{ By int }
)

func (t *tally) count(ctx *eventsourcing.Context[tally, counted, int], c count) eventsourcing.Decision[tally, counted, int] {
	if c.By == 0 {
		return ctx.Reply(t.N)
	}
	return ctx.Persist(counted{c.By}).ReplyFunc(func() int { return t.N })
}

func tallyType() eventsourcing.Type[tally, counted] {
	return eventsourcing.Type[tally, counted]{
		Name:     "tally",
		Commands: eventsourcing.Commands(eventsourcing.On("count", (*tally).count)),
		Apply:    func(t *tally, e counted) { t.N += e.By },
		Events:   codec.Types(codec.Name[counted]("counted")),
	}
}

// A command is answered when its event is stored, and the state survives the runtime.
func TestCommandEventRecovery(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		for run := 1; run <= 2; run++ {
			rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
			if err != nil {
				t.Fatal(err)
			}
			tallies, err := eventsourcing.Host(rt, tallyType())
			if err != nil {
				t.Fatal(err)
			}
			if n, asked := eventsourcing.Ask(within(t), tallies.Ref("a"), count{By: 5}); n != 5*run || asked != nil {
				t.Errorf("run %d: the reply is %d, %v, want %d", run, n, asked, 5*run)
			}
			closeRuntime(t, rt)
		}
	})
}

// One entity answers the commands of all nodes, and its node may crash.
func TestShardedEntity(t *testing.T) {
	t.Parallel()
	f := threeNodes(t)
	ctx := within(t)
	var regions []*sharding.Region[tally]
	for i, node := range f.nodes {
		r, err := sharding.Host(ctx, node, f.runtimes[i], tallyType(), sharding.Options{Shards: 10})
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	want := 0
	for i, r := range regions {
		for id := range 20 {
			if _, err := eventsourcing.Ask(ctx, r.Ref(fmt.Sprint(id)), count{By: i + 1}); err != nil {
				t.Fatal(err)
			}
		}
		want += i + 1
	}
	f.crash(f.nodes[2])
	for id := range 20 {
		n, err := askAgain(ctx, regions[0].Ref(fmt.Sprint(id)), count{})
		if n != want || err != nil {
			t.Errorf("entity %d has the count %d, %v, want %d", id, n, err, want)
		}
	}
}
