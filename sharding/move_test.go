// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

// TestMove checks that a shard that an operator moves stays on its node until it is released, also
// over a restart of the coordinator and of the node.
func TestMove(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards, w.options.Tuning.RebalanceInterval = 12, 5*time.Second
		all := w.cluster("a", "b", "c")
		admin, ctx := sharding.NewAdmin(w.network.Operator("ann")), w.Context()
		for d := range 60 {
			if _, err := ask(w, all[d%3], id(d), write{By: "ann", N: 1}); err != nil {
				w.Fatal(err)
			}
		}
		moved, err := all[0].region.ShardOf(id(1))
		w.must(err)
		on := func(want string) {
			w.Helper()
			p, err := ask(w, w.nodes["a"], id(1), write{By: "ann", N: 2})
			if err != nil || p.Node != want {
				w.Errorf("shard %d is on %q, %v, want %s", moved, p.Node, err, want)
			}
		}
		to := "b"
		if p, err := ask(w, all[0], id(1), write{By: "ann", N: 2}); err != nil {
			w.Fatal(err)
		} else if p.Node == "b" {
			to = "c"
		}
		for name, test := range map[string]struct {
			call func() error
			want error
			text string
		}{
			"unknown node":        {func() error { return admin.Move(ctx, "a", "diary", moved, "x") }, sharding.ErrCannotMove, `node "x": it is not a member`},
			"unknown shard":       {func() error { return admin.Move(ctx, "a", "diary", 12, "b") }, sharding.ErrCannotMove, "shards 0 to 11, not 12"},
			"no node":             {func() error { return admin.Move(ctx, "a", "diary", moved, "") }, nil, "the name of the node is missing"},
			"unknown type":        {func() error { return admin.Move(ctx, "a", "letter", moved, "b") }, sharding.ErrNoRegion, "letter"},
			"no coordinator":      {func() error { return admin.Move(ctx, "b", "diary", moved, "b") }, sharding.ErrNoCoordinator, "on b"},
			"nothing to release":  {func() error { return admin.Release(ctx, "a", "diary", moved) }, sharding.ErrCannotMove, "not pinned"},
			"release on the node": {func() error { return admin.Release(ctx, "c", "diary", moved) }, sharding.ErrNoCoordinator, "on c"},
		} {
			if err := test.call(); err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				w.Errorf("%s: %v, want %v with %q", name, err, test.want, test.text)
			}
		}

		w.must(admin.Move(ctx, "a", "diary", moved, to))
		w.sleep(10 * time.Second)
		on(to)
		w.sleep(time.Minute) // several rebalances
		on(to)
		pins := admin.Regions(ctx, []string{"a"})[0].Region("diary").CoordinatorState.Pins
		if len(pins) != 1 || pins[0] != (sharding.AdminPin{Shard: moved, Node: to, Home: to}) {
			w.Errorf("Pins = %+v, want shard %d on %s", pins, moved, to)
		}

		w.must(w.nodes[to].region.Drain(ctx)) // the strategy chooses another home
		if p, err := ask(w, w.nodes["a"], id(1), write{By: "ann", N: 2}); err != nil || p.Node == to {
			w.Errorf("shard %d is on %q, %v, want it to leave the drained node %s", moved, p.Node, err, to)
		}
		w.must(w.nodes[to].region.Undrain(ctx))
		w.sleep(20 * time.Second)
		on(to)

		w.must(admin.Release(ctx, "a", "diary", moved))
		if pins := admin.Regions(ctx, []string{"a"})[0].Region("diary").CoordinatorState.Pins; len(pins) != 0 {
			w.Errorf("after Release: Pins = %+v, want none", pins)
		}
	})
}

// A move is listed with its homes and its begin until it ends. A silent node delays it.
func TestMovesAreListed(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 1
		all := w.cluster("a", "b", "c")
		admin, ctx := sharding.NewAdmin(w.network.Operator("ann")), w.Context()
		if _, err := ask(w, all[0], id(1), write{By: "ann"}); err != nil {
			w.Fatal(err)
		}
		moves := func() []sharding.AdminMove {
			return admin.Regions(ctx, []string{"a"})[0].Region("diary").CoordinatorState.Moves
		}
		w.must(admin.Move(ctx, "a", "diary", 0, "a"))
		w.sleep(10 * time.Second)
		w.network.Partition([]string{"c"}, []string{"a", "b"})
		before := time.Now()
		w.must(admin.Move(ctx, "a", "diary", 0, "b"))
		after := time.Now()
		w.sleep(time.Second)
		got := moves()
		if len(got) != 1 || got[0].Since.Before(before.Add(-time.Millisecond)) || got[0].Since.After(after.Add(time.Millisecond)) {
			w.Fatalf("Moves = %+v, want one that began between %v and %v", got, before, after)
		}
		if got[0].Since = (time.Time{}); got[0] != (sharding.AdminMove{Shard: 0, Step: "stopping", From: "a", To: "b"}) {
			w.Errorf("Moves = %+v, want shard 0 that leaves a for b", got)
		}
		w.up(all[:2]...) // c is removed
		w.sleep(10 * time.Second)
		if p, err := ask(w, all[0], id(1), write{By: "ann"}); err != nil || p.Node != "b" || len(moves()) > 0 {
			w.Errorf("after the removal of c, the shard is on %q, %v, with the moves %+v, want b and none", p.Node, err, moves())
		}
	})
}

// A shard that its next home starts is counted apart from those in a hand-off. The region names the
// singleton that runs the coordinator.
func TestStartingShardsAreCounted(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 1
		all := w.cluster("a", "b")
		operator, ctx := w.network.Operator("ann"), w.Context()
		admin := sharding.NewAdmin(operator)
		if _, err := ask(w, all[0], id(1), write{By: "ann"}); err != nil {
			w.Fatal(err)
		}
		region := admin.Regions(ctx, []string{"b"})[0].Region("diary")
		singletons, err := cluster.NewAdmin(operator).Singletons(ctx, []string{"a", "b"})
		w.must(err)
		if !slices.ContainsFunc(singletons, func(s cluster.SingletonStatus) bool { return s.Name == region.Singleton && s.Node == "a" }) {
			w.Errorf("the region reports the singleton %q, want one of %+v on a", region.Singleton, singletons)
		}
		w.must(admin.Move(ctx, "a", "diary", 0, "a"))
		w.sleep(10 * time.Second)
		w.network.Inject(inmem.Fault{Delay: 50 * time.Millisecond})
		w.must(admin.Move(ctx, "a", "diary", 0, "b"))
		steps := map[string]int{}
		for range 400 {
			at := admin.Regions(ctx, []string{"a"})[0].Region("diary").CoordinatorState
			for _, m := range at.Moves {
				steps[m.Step]++
				if (m.Step == "stopping") != (at.Moving == 1) || (m.Step == "starting") != (at.Starting == 1) {
					w.Errorf("a shard is %s, and the coordinator counts %d moving and %d starting", m.Step, at.Moving, at.Starting)
				}
			}
			w.sleep(5 * time.Millisecond)
		}
		if steps["stopping"] == 0 || steps["starting"] == 0 {
			w.Errorf("the steps of the move are %v, want stopping and starting", steps)
		}
	})
}
