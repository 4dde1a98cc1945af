// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/sim/env"
)

// The versions of the application.
const (
	old    = "1.0.0"
	recent = "1.1.0"
)

// cluster is all that is simulated.
type cluster struct {
	Restart

	w          *env.World
	result     Result
	list       list
	nodes      []*node // the last one of each name, by the age of the first
	byNode     map[identity.Node]*node
	uids       uint64
	store      store
	owners     []*node // by shard
	owned      int     // shards that have one
	living     []*node // by shard: where its entity runs
	moves      []int   // by shard: how often it was handed off
	restarting bool
	begun      bool   // hand-offs are counted
	sends      bool   // nodes send commands
	arrived    []bool // by the number of the command, from 1
}

func newCluster(r Restart, w *env.World) *cluster {
	return &cluster{
		Restart: r, w: w, nodes: make([]*node, r.Nodes), byNode: map[identity.Node]*node{}, owners: make([]*node, r.Shards), living: make([]*node, r.Shards),
		moves: make([]int, r.Shards),
	}
}

// between draws a duration.
func (c *cluster) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.w.Rand.Int64N(int64(most-least)))
}

// delay is how long a frame takes that may be overtaken.
func (c *cluster) delay() time.Duration { return c.between(time.Millisecond, 5*time.Millisecond) }

// start starts a process.
func (c *cluster) start(i int, version string) *node {
	c.uids++
	n := &node{c: c, nr: i, self: identity.Node{Name: fmt.Sprintf("node-%04d", i), UID: c.uids}, wakes: shardcore.Never, entities: map[place]bool{}}
	var err error
	if n.version, err = identity.ParseVersion(version); err != nil {
		panic(fmt.Sprintf("rolling: %v", err)) // a constant
	}
	retry := 2 * time.Second
	n.m, err = shardcore.New(shardcore.Config{ // as package sharding has it by default
		Region:      region.Config{Self: n.self, Type: "account", Instance: 1, RetryInterval: retry, GiveUpAfter: 3 * retry},
		Shard:       shard.Config{StopTimeout: 55 * time.Second},
		Coordinator: coordinator.Config{Shards: c.Shards, RemovalMargin: 20 * time.Second, RetryInterval: retry},
	})
	if err != nil {
		panic(fmt.Sprintf("rolling: %v: %v", n.self, err)) // the configuration is the simulator's
	}
	c.byNode[n.self] = n
	return n
}

func (c *cluster) allRegistered() bool {
	for _, n := range c.nodes {
		if !n.m.Registered() {
			return false
		}
	}
	return true
}

func (c *cluster) allHosted() bool { return c.owned == c.Shards && c.store.state.Shards() == c.Shards }

// begin lets all nodes send commands, and counts hand-offs from now on.
func (c *cluster) begin() {
	c.begun, c.sends = true, true
	for _, n := range c.nodes {
		c.send(n)
	}
}
