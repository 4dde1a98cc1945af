// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// A member that was removed while this node was suspended may still host shards. A coordinator that
// starts afterwards waits for the margin, also if the region was stopped at the removal.
func TestRemovedWhileSuspended(t *testing.T) {
	t.Parallel()
	d := drive(t, "a", "b")
	d.now = time.Hour
	if out := d.step(shardcore.Members{Suspended: true}); out.Stopped {
		t.Error("a suspended region ends for good")
	}
	d.see(identity.Up, "a")
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
		t.Errorf("the shards of the removed node are free %v after its removal, the margin is a minute", d.now-removed)
	}
	if !terminated(removed + 2*time.Minute) {
		t.Error("the shards of the removed node are not free after the margin")
	}
}
