// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/shardcore/shard"
)

func leased(remember bool) shard.Config {
	cfg := off()
	cfg.Lease, cfg.Remember = true, remember
	return cfg
}

// Messages wait until the node holds the lease. The shard is done after the release.
func TestLease(t *testing.T) {
	t.Parallel()
	d := drive(t, leased(false))
	d.step(to("a", 1), "")
	d.step(shard.LeaseDenied{}, "")
	d.tick(4*time.Second, "")
	d.tick(time.Second, "acquire")
	d.tick(time.Hour, "")
	d.step(to("a", 2), "")
	d.step(to("b", 3), "")
	d.step(shard.LeaseHeld{}, "+a1, a1:1, a1:2, +b2, b2:3")
	d.step(shard.HandOff{}, "-a1, -b2")
	d.step(ended("a", 1), "")
	d.step(ended("b", 2), "release")
	d.step(to("a", 4), "x4 handed off")
	d.tick(time.Hour, "")
	d.step(shard.LeaseReleased{}, "done: handed off")
	d.step(shard.LeaseLost{}, "")
}

// A shard without its lease loads nothing, and ends at a hand-off without waiting.
func TestHandOffWithoutLease(t *testing.T) {
	t.Parallel()
	d := drive(t, leased(true))
	d.step(to("a", 1), "")
	d.step(shard.HandOff{}, "x1 handed off, release")
	d.step(shard.LeaseHeld{}, "")
	d.step(shard.LeaseReleased{}, "done: handed off")

	d = drive(t, leased(true))
	d.step(to("a", 1), "")
	d.step(shard.LeaseHeld{}, "load")
	d.step(loaded("b"), "store1 +[a] -[], +b1")
}

// The loss of the lease kills all entities at once.
func TestLostLease(t *testing.T) {
	t.Parallel()
	for _, handOff := range []bool{false, true} {
		d := drive(t, leased(false))
		d.step(shard.LeaseHeld{}, "")
		d.step(to("a", 1), "+a1, a1:1")
		d.step(passivate("a", 1), "-a1")
		d.step(to("a", 2), "")
		if handOff {
			d.step(shard.HandOff{}, "")
		}
		d.step(shard.LeaseLost{}, "x2 shard failed, !a1")
		d.step(to("a", 3), "x3 shard failed")
		d.step(ended("a", 1), "release")
		d.step(shard.LeaseLost{}, "")
		d.step(shard.LeaseReleased{}, "done: shard failed")
	}
}
