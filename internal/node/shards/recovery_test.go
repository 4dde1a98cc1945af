// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shards_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// The rate at which remembered entities come back is that of the node, and shards take turns.
func TestOneRateForAllShards(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Region.Remember = true
	cfg.Shard = shard.Config{RecoverNumber: 3, RecoverInterval: time.Second}
	m, err := shards.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, m: m}
	d.see(membership.Up, "b", "a")
	d.hear(coordinator.Message{Kind: coordinator.RegisterAck})
	out := d.hear(coordinator.Message{Kind: coordinator.Host, Round: 1, Shards: []shards.Shard{1, 2, 3, 4, 5}})
	if len(out.Remember) != 5 {
		t.Fatalf("of 5 shards %d are loaded", len(out.Remember))
	}
	started := map[shards.Shard]int{}
	count := func(out shards.Effects) (n int) {
		for _, a := range out.Actions {
			if a.Kind == shard.Start {
				started[a.Shard]++
				n++
			}
		}
		return n
	}
	n := 0
	for i, r := range out.Remember {
		n += count(d.step(shards.Entities{Run: r.Run, Input: shard.Loaded{Entities: []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b")}}}))
	}
	for n < 10 {
		at := d.m.Next()
		n += count(d.m.Tick(at))
		if most := 3 * (1 + int(at/time.Second)); n > most {
			t.Fatalf("after %v %d have come, not at most %d", at, n, most)
		}
		if at > 10*time.Second {
			t.Fatalf("only %d come", n)
		}
		if n == 6 && len(started) != 5 {
			t.Errorf("of 5 shards only %d have had a turn: %v", len(started), started)
		}
	}
}
