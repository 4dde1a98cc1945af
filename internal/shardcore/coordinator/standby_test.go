// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// TestStandbysOfShards checks that each shard has the required number of standbys on any set of
// nodes, that these are spread evenly, and that those that remain are the same when a node leaves.
func TestStandbysOfShards(t *testing.T) {
	t.Parallel()
	const shards = 3000
	for count := range 3 {
		var nodes []identity.Node
		for i := range 7 {
			nodes = append(nodes, node(fmt.Sprint("node-", i)))
		}
		before := map[shard][]identity.Node{}
		load := map[identity.Node]int{}
		for s := range shard(shards) {
			for _, n := range nodes {
				if coordinator.IsStandby(s, n, nodes, count) {
					before[s] = append(before[s], n)
					load[n]++
				}
			}
			if len(before[s]) != count+1 {
				t.Fatalf("shard %d has the standbys %v, want %d", s, before[s], count+1)
			}
		}
		for n, have := range load {
			if mean := shards * (count + 1) / len(nodes); have < mean*3/4 || have > mean*5/4 {
				t.Errorf("%v is a standby of %d shards, want about %d", n, have, mean)
			}
		}
		rest := slices.Concat(nodes[:3], nodes[4:])
		for s, all := range before {
			for _, n := range all {
				if n != nodes[3] && !coordinator.IsStandby(s, n, rest, count) {
					t.Fatalf("%v is no standby of shard %d after another node has left", n, s)
				}
			}
		}
	}
}

// TestPromotion checks that a shard whose home was removed goes to the standby that has applied most of
// the journal, whatever the strategy chooses, and that other shards follow the strategy.
func TestPromotion(t *testing.T) {
	t.Parallel()
	rest := []identity.Node{node("a"), node("b"), node("c")}
	all := append(slices.Clone(rest), node("d"))
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		count := random.IntN(3) + 1
		s := shard(random.IntN(1000))
		d := active(t, coordinator.Config{Standbys: count}, "a b c d", append(registered("a", "b", "c", "d"), allocated("d", s))...)
		d.mute, d.followed = true, map[string]string{}
		for _, n := range rest {
			if random.IntN(3) > 0 {
				d.followed[n.Name] = fmt.Sprint(random.IntN(30))
			}
		}
		d.members("a b c")
		if d.ask != nil {
			t.Fatalf("seed %d: the coordinator asks the strategy", seed)
		}
		home, _ := d.state.Home(s)
		if !coordinator.IsStandby(s, home, all, count) {
			t.Errorf("seed %d: the home is %v, which was no standby of shard %d", seed, home, s)
		}
		for _, n := range rest {
			if coordinator.IsStandby(s, n, all, count) && further(d.followed[n.Name], d.followed[home.Name]) {
				t.Errorf("seed %d: the home is %v at position %q, but the standby %v is at %q", seed, home, d.followed[home.Name], n, d.followed[n.Name])
			}
		}
		chosen := rest[random.IntN(len(rest))]
		d.get("a", s+1) // a new shard
		d.place(chosen)
		if home, _ = d.state.Home(s + 1); home != chosen {
			t.Errorf("seed %d: the home of a new shard is %v, want the choice of the strategy, %v", seed, home, chosen)
		}
	}
}

// further compares decimal positions.
func further(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// TestPromotionWithoutStandby checks that the strategy chooses the home if no standby can host.
func TestPromotionWithoutStandby(t *testing.T) {
	t.Parallel()
	s := shard(0)
	for coordinator.IsStandby(s, node("a"), []identity.Node{node("a"), node("b"), node("c")}, 1) {
		s++
	}
	d := active(t, coordinator.Config{Standbys: 1}, "a b c", append(registered("a", "b", "c"), allocated("c", s))...)
	d.still = []string{"b"}
	d.mute = true
	d.members("a b")
	d.pass(time.Second)
	d.place(node("a"))
	if home, _ := d.state.Home(s); home != node("a") {
		t.Errorf("the home is %v, want a, because b does not respond", home)
	}
}
