// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// A region that does not respond gets no shards, and delays only one allocation.
func TestSilentRegionGetsNoShards(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b c", append(registered("a", "b", "c"), allocated("a", 1), allocated("b", 2))...)
	d.still = []string{"c"}
	d.get("b", 3)
	d.pass(500*time.Millisecond - 1)
	d.want("before the probe times out", "")
	d.pass(1)
	d.want("after the probe has timed out", "a host[3], b homes a[3]")
	if n := d.noted(coordinator.Silent); n != 1 {
		t.Errorf("%d regions were noted as silent, want 1", n)
	}
	d.get("a", 4)
	d.want("next allocation", "b host[4], a homes b[4]")
	// A Hosted of another instance is ignored. Any request proves that a region is alive.
	d.receive("c", coordinator.Message{Kind: coordinator.Hosted, Instance: 2, Round: 1})
	d.get("a", 5)
	d.sent()
	d.stored("Hosted of another instance", "homes allocated a[3]; homes allocated b[4]; homes allocated a[5]")
	d.still = nil
	d.get("c", 6)
	d.stored("request of the silent region", "homes allocated c[6]")
	d.still = []string{"b", "c"}
	d.get("a", 7)
	d.pass(time.Second)
	d.stored("only the region of the coordinator's node responds", "homes allocated a[7]")
}

// The coordinator also waits for regions that were registered with the previous coordinator and not yet with this one.
func TestProbeWaitsForInvitedRegions(t *testing.T) {
	t.Parallel()
	begin := func() *driver {
		d := drive(t, coordinator.Config{}, append(registered("a", "b", "c"), allocated("a", 1), allocated("b", 2))...)
		d.members("a b c")
		d.loaded()
		d.pass(500 * time.Millisecond)
		for _, n := range []string{"a", "b"} {
			d.receive(n, coordinator.Message{Kind: coordinator.Register})
		}
		d.sent()
		d.changes = nil
		d.get("b", 3)
		return d
	}
	d := begin()
	d.stored("before c registers", "")
	d.receive("c", coordinator.Message{Kind: coordinator.Register})
	d.stored("after c has registered", "homes allocated c[3]")
	d = begin()
	d.pass(500 * time.Millisecond)
	d.stored("c does not register in time", "homes allocated a[3]")
}
