// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"math"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding/allocation"
)

// report is the load of ten seconds.
func report(busy time.Duration, commands uint64, shards ...coordinator.ShardLoad) coordinator.Message {
	return coordinator.Message{Kind: coordinator.Hosted, Load: &coordinator.Load{
		Window: 10 * time.Second, CPU: 5 * time.Second, Cores: 2, Memory: 1 << 20, Busy: busy, Commands: commands, Shards: shards,
	}}
}

// view returns the view of the next rebalance.
func (d *driver) view() allocation.View {
	d.t.Helper()
	d.rebalance = nil
	d.step(coordinator.RebalanceNow{})
	if d.rebalance == nil {
		d.t.Fatal("the strategy is not called")
	}
	d.step(coordinator.Rebalanced{ID: d.rebalance.ID})
	return d.rebalance.View
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// The view has the load of the reported shards. The other shards of the region share the rest.
func TestReportedLoad(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{ReadsLoad: true}, "a b c", append(registered("a", "b", "c"), allocated("a", 1, 2, 3), allocated("b", 4))...)
	busiest := coordinator.ShardLoad{Shard: 1, Busy: 4 * time.Second, Commands: 800, Waiting: 3, Entities: 9}
	foreign := coordinator.ShardLoad{Shard: 4, Busy: 9 * time.Second, Commands: 7}
	unknown := coordinator.ShardLoad{Shard: 5000, Busy: 9 * time.Second}
	d.receive("a", report(6*time.Second, 1000, busiest, foreign, unknown))
	v := d.view()
	one := v.Load[1]
	if !near(one.Busy, 0.4) || !near(one.Commands, 80) || one.Waiting != 3 || one.Entities != 9 || one.Settled != math.MaxInt64 {
		t.Errorf("shard 1 has load %+v, want the reported one for each second", one)
	}
	if two := v.Load[2]; !near(two.Busy, 0.1) || !near(two.Commands, 10) {
		t.Errorf("shard 2 has load %+v, want half of the rest", two)
	}
	if _, known := v.Load[4]; known || len(v.Load) != 3 || len(v.Nodes) != 0 {
		t.Errorf("the view has the loads %+v and %+v, want none of foreign shards, and no node after one report", v.Load, v.Nodes)
	}

	d.now += 10 * time.Second
	d.receive("a", report(0, 0))
	v = d.view()
	if kept := math.Exp(-1.0 / 3); !near(v.Load[1].Busy, 0.4*kept) || !near(v.Load[1].Commands, 80*kept) {
		t.Errorf("after an idle report, shard 1 has load %+v, want %.3f of the previous one", v.Load[1], kept)
	}
	if a := v.Nodes[node("a")]; !near(a.CPU, 0.5) || a.Cores != 2 || a.Memory != 1<<20 || len(v.Nodes) != 1 {
		t.Errorf("the nodes have the loads %+v, want that of a", v.Nodes)
	}
	d.now += 2 * time.Minute
	if v = d.view(); len(v.Nodes) != 0 || len(v.Load) != 3 {
		t.Errorf("two minutes without a report later, the view has the nodes %+v and %d shards, want no node and 3", v.Nodes, len(v.Load))
	}
}

// A shard that has moved keeps its load, and its Settled begins with the move.
func TestLoadOfMovedShard(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{ReadsLoad: true}, "a b", append(registered("a", "b"), allocated("a", 1, 2))...)
	d.receive("a", report(2*time.Second, 10, coordinator.ShardLoad{Shard: 1, Busy: 2 * time.Second, Commands: 10}))
	d.pin(1, "b")
	d.receive("a", report(0, 0))
	d.handOff(1, "a", "b")
	if d.home(1) != "b" {
		t.Fatalf("shard 1 is on %q, want b", d.home(1))
	}
	d.now += 7 * time.Second
	v := d.view()
	if at := v.Load[1]; !near(at.Busy, 0.2) || at.Settled != 7*time.Second {
		t.Errorf("seven seconds after its move, shard 1 has load %+v, want that before the move", at)
	}
	if at := v.Load[2]; at.Settled != math.MaxInt64 {
		t.Errorf("shard 2 has load %+v, want that of a shard that never moved", at)
	}
	d.receive("a", report(0, 0))
	d.members("b")
	if v = d.view(); len(v.Nodes) != 0 {
		t.Errorf("after the removal of a, the nodes have the loads %+v, want none", v.Nodes)
	}
}

// Without a strategy that reads it, the load is ignored. Reports of strangers are ignored as well.
func TestUnwantedLoad(t *testing.T) {
	t.Parallel()
	events := append(registered("a"), allocated("a", 1), event{Kind: coordinator.ProxyRegistered, Node: node("p")})
	d := active(t, coordinator.Config{}, "a p", events...)
	d.receive("a", report(time.Second, 1))
	if v := d.view(); v.Load != nil || v.Nodes != nil {
		t.Errorf("the view has the loads %+v and %+v, want none", v.Load, v.Nodes)
	}
	d = active(t, coordinator.Config{ReadsLoad: true}, "a p", events...)
	for _, from := range []string{"p", "x"} {
		d.receive(from, report(time.Second, 1, coordinator.ShardLoad{Shard: 1, Busy: time.Second}))
	}
	d.receive("a", coordinator.Message{Kind: coordinator.Hosted, Load: &coordinator.Load{Busy: time.Second}}) // without a window
	if v := d.view(); len(v.Load) != 0 || len(v.Nodes) != 0 || v.Load == nil {
		t.Errorf("the view has the loads %+v and %+v, want empty ones", v.Load, v.Nodes)
	}
}
