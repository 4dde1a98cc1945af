// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package rolling simulates a large cluster that hosts sharded entities while its nodes restart one
// after the other with a new version of the application.
//
//	result := rolling.Restart{Seed: 1, Nodes: 500, Shards: 5000}.Run()
//
// Sharding is the real implementation: each node has a machine of package internal/shardcore with
// its region, its shards, and the coordinator while the node runs it, with default settings and the
// default strategy. Frames between nodes are encoded, take 1 to 5 ms, and are never lost. The
// coordinator's store is a journal with conditional appends.
//
// Membership is a model, because hundreds of simulated gossiping nodes would need hours: there is
// one list of members, which changes status as in reality, and each node learns each change after
// its own delay. The consequences of a change wait until all nodes have learned it. The singleton
// with the coordinator moves to the oldest staying member when its node is Exiting.
//
// After each step of a node these rules are checked: a shard has at most one owner, which was
// stored as its home before; an entity runs once; a command is delivered once.
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

// cluster is the state of a simulation.
type cluster struct {
	Restart

	w          *env.Env
	result     Result
	list       list
	nodes      []*node // the last process of each name, by the age of the first
	byNode     map[identity.Node]*node
	uids       uint64
	store      store
	owners     []*node // by shard
	owned      int     // number of shards with an owner
	living     []*node // by shard: the node that runs its entity
	moves      []int   // by shard: number of hand-offs
	restarting bool
	begun      bool   // hand-offs are counted
	sends      bool   // nodes send commands
	arrived    []bool // by the number of the command, from 1
}

func newCluster(r Restart, w *env.Env) *cluster {
	return &cluster{
		Restart: r, w: w, nodes: make([]*node, r.Nodes), byNode: map[identity.Node]*node{}, owners: make([]*node, r.Shards), living: make([]*node, r.Shards),
		moves: make([]int, r.Shards),
	}
}

// between draws a duration.
func (c *cluster) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.w.Rand.Int64N(int64(most-least)))
}

// delay returns the duration of a frame that may be overtaken.
func (c *cluster) delay() time.Duration { return c.between(time.Millisecond, 5*time.Millisecond) }

// start starts a process.
func (c *cluster) start(i int, version string) *node {
	c.uids++
	n := &node{c: c, nr: i, self: identity.Node{Name: fmt.Sprintf("node-%04d", i), UID: c.uids}, wakes: shardcore.Never, entities: map[place]bool{}}
	var err error
	if n.version, err = identity.ParseVersion(version); err != nil {
		panic(fmt.Sprintf("rolling: %v", err)) // constant
	}
	retry := 2 * time.Second
	n.m, err = shardcore.New(shardcore.Config{ // the defaults of package sharding
		Region:      region.Config{Self: n.self, Type: "account", Instance: 1, RetryInterval: retry, GiveUpAfter: 3 * retry},
		Shard:       shard.Config{StopTimeout: 55 * time.Second},
		Coordinator: coordinator.Config{Shards: c.Shards, RemovalMargin: 20 * time.Second, RetryInterval: retry},
	})
	if err != nil {
		panic(fmt.Sprintf("rolling: %v: %v", n.self, err)) // the simulator made the configuration
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

// begin lets all nodes send commands and starts to count hand-offs.
func (c *cluster) begin() {
	c.begun, c.sends = true, true
	for _, n := range c.nodes {
		c.send(n)
	}
}
