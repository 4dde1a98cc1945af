// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
)

// TestByLoad checks that nodes report the load of their shards, and that shards leave the busiest
// node for an idle one. The clock of the test stands still during turns, so commands are the load.
func TestByLoad(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards, w.options.Strategy = 30, sharding.Pure(allocation.ByLoad{})
		w.options.ShardOf = func(id string) sharding.Shard {
			var n int
			if _, err := fmt.Sscanf(id, "d%d", &n); err != nil {
				return 0
			}
			return sharding.Shard(n % 30)
		}
		all := w.cluster("a", "b")
		load := func() map[string]int {
			on := map[string]int{}
			for d := range 30 {
				id := fmt.Sprintf("d%d", d)
				for range 5 {
					p, err := ask(w, all[0], id, write{By: "ann", N: 1})
					if err != nil {
						w.Fatal(err)
					}
					on[p.Node]++
				}
			}
			return on
		}
		for range 30 {
			load()
			w.sleep(time.Second)
		}
		if on := load(); on["a"] < 60 || on["b"] < 60 {
			w.Fatalf("the commands are handled by %v, want a similar number on a and b", on)
		}
		rates := func(low, high float64) {
			w.Helper()
			shards := 0
			for _, name := range []string{"a", "b"} {
				for s, err := range sharding.NewAdmin(w.network.Operator("ann")).Shards(w.Context(), name, "diary") {
					if w.must(err); s.PerSecond == nil || *s.PerSecond < low || *s.PerSecond > high {
						w.Errorf("shard %d on %s: %+v, want %v to %v commands per second", s.Shard, name, s, low, high)
					}
					shards++
				}
			}
			if shards != 30 {
				w.Errorf("a and b host %d shards, want 30", shards)
			}
		}
		rates(4, 6)
		w.sleep(25 * time.Second)
		rates(0, 0)
		c := w.start("c")
		w.up(append(all, c)...)
		w.must(c.region.AwaitReady(w.Context()))
		for range 60 {
			load()
			w.sleep(time.Second)
		}
		for name, n := range load() {
			if n > 60 {
				w.Errorf("%s handles %d of 150 commands, want about 50", name, n)
			}
		}
		if state, err := c.region.State(w.Context()); err != nil || len(state.Shards) < 7 || len(state.Shards) > 12 {
			w.Errorf("c hosts %d shards, %v, want about ten", len(state.Shards), err)
		}
	})
}
