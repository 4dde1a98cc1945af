// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// A member that was removed while this node was suspended may still host shards. A coordinator that
// starts afterwards waits for the margin, even if the region was stopped at the removal.
func TestRemovedWhileSuspended(t *testing.T) {
	t.Parallel()
	d := drive(t, "a", "b")
	d.now = time.Hour
	if out := d.step(shardcore.Members{Suspended: true}); out.Stopped {
		t.Error("Stopped = true for a suspended region, want false")
	}
	d.setMembers(identity.Up, "a")
	b := node("b")
	state, err := coordinator.State{}.Apply(
		coordinator.Event{Kind: coordinator.RegionRegistered, Node: b},
		coordinator.Event{Kind: coordinator.HomesAllocated, Node: b, Shards: []coordinator.Shard{1}})
	if err != nil {
		t.Fatal(err)
	}
	out := d.step(shardcore.StartCoordinator{})
	out = d.step(shardcore.CoordinatorReply{Input: coordinator.Loaded{ID: out.Load, State: state, Rev: 2}})
	terminated := func(until time.Duration) bool {
		for ; d.now < until; d.now += time.Second {
			for out.Save != nil {
				for _, e := range out.Save.Events {
					if e.Kind == coordinator.RegionTerminated {
						return true
					}
				}
				out = d.step(shardcore.CoordinatorReply{Input: coordinator.Saved{ID: out.Save.ID}})
			}
			out = d.m.Tick(d.now)
		}
		return false
	}
	removed := d.now
	if terminated(removed + time.Minute) {
		t.Errorf("the shards of the removed node got homes %v after its removal, want a minute", d.now-removed)
	}
	if !terminated(removed + 2*time.Minute) {
		t.Error("the shards of the removed node got no homes after the margin")
	}
}

// A suspended node stops its region and its coordinator. After the end of its entities and of the
// suspension the next instance starts. It runs the coordinator, and is drained if the previous
// instance was. A region that must end does not start again.
func TestSuspension(t *testing.T) {
	t.Parallel()
	d := drive(t, "a", "b")
	d.step(shardcore.StartCoordinator{})
	d.receive(coordinator.Message{Kind: coordinator.Host, Round: 1, Shards: []shardcore.Shard{2}})
	d.arrive(region.Frame{Kind: region.Forward, Shard: 2}, "x")
	out := d.step(shardcore.Members{Suspended: true})
	if len(out.Actions) != 1 || out.Actions[0].Kind != shard.Kill || !out.CoordinatorStopped || out.Stopped || !d.m.Halted() {
		t.Fatalf("suspended: %+v, want a Kill of the entity, and the end of the coordinator only", out)
	}
	run := out.Actions[0].ShardRun
	d.step(shardcore.Leave{KeepRouting: true})
	if out = d.setMembers(identity.Up, "a", "b"); out.Restarted || !d.m.Halted() {
		t.Errorf("resumed while an entity runs: %+v, want a halted region", out)
	}
	out = d.step(shardcore.ShardInput{ShardRun: run, Input: shard.Ended{Entity: "x", Incarnation: 1}})
	if !out.Restarted || out.Stopped || out.Load == 0 || d.m.Halted() || d.m.Instance() != 2 || !d.m.Leaving() || !d.m.Drained() {
		t.Errorf("after the end of the entity: %+v, instance %d, drained: %t, want a drained instance 2 with a coordinator", out, d.m.Instance(), d.m.Drained())
	}
	if out = d.step(shardcore.Undrain{}); d.m.Leaving() || d.m.Instance() != 3 {
		t.Errorf("Undrain: %+v, instance %d, want instance 3, not leaving", out, d.m.Instance())
	}
	d.step(shardcore.Members{Suspended: true})
	if out = d.step(shardcore.Leave{}); !out.Stopped || !d.m.Ending() {
		t.Errorf("Leave while suspended: %+v, want Stopped", out)
	}
	if out = d.setMembers(identity.Up, "a", "b"); out.Restarted || !out.Stopped {
		t.Errorf("resumed after Leave: %+v, want Stopped and no restart", out)
	}
}
