// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// every is the mean interval at which a node sends a command to a random entity.
const every = 5 * time.Second

// place identifies an incarnation of an entity. Each shard has one entity, with the number of the
// shard.
type place struct {
	shardcore.ShardRun

	incarnation uint64
}

// act applies an action to an entity.
func (n *node) act(a shardcore.Action) {
	c, at := n.c, place{a.ShardRun, a.Incarnation}
	if a.Kind != shard.Start && !n.entities[at] {
		c.violate("%v of an entity of shard %d, which does not run on %v", a.Kind, a.Shard, n.self)
	}
	tell := func(in shard.Input) func() {
		return func() { n.step(shardcore.ShardInput{ShardRun: a.ShardRun, Input: in}) }
	}
	switch a.Kind {
	case shard.Start:
		if other := c.living[a.Shard]; other != nil {
			c.violate("the entity of shard %d starts on %v, and runs on %v", a.Shard, n.self, other.self)
		}
		c.living[a.Shard], n.entities[at] = n, true
		n.after(c.between(time.Millisecond, 10*time.Millisecond), tell(shard.Started{Entity: a.Entity, Incarnation: a.Incarnation}))
	case shard.Pass:
		c.delivered(a.Message)
	case shard.Stop, shard.Kill:
		n.after(c.between(time.Millisecond, 20*time.Millisecond), func() {
			if n.entities[at] {
				delete(n.entities, at)
				c.living[a.Shard] = nil
				tell(shard.Ended{Entity: a.Entity, Incarnation: a.Incarnation})()
			}
		})
	}
}

// delivered records the delivery of a command and checks that it is the only one.
func (c *cluster) delivered(m shardcore.Message) {
	nr, local := m.Local.(uint64)
	if !local {
		nr, _ = binary.Uvarint(m.Body)
	}
	if nr == 0 || nr > uint64(len(c.arrived)) || c.arrived[nr-1] {
		c.violate("command %d comes once more, or was never sent", nr)
		return
	}
	c.arrived[nr-1] = true
	c.result.Delivered++
}

// command sends a command from a node to the entity of a shard.
func (c *cluster) command(from *node, s shardcore.Shard) {
	c.arrived = append(c.arrived, false)
	c.result.Commands++
	from.step(shardcore.Send{Shard: s, Message: shardcore.Message{Entity: strconv.Itoa(int(s)), Local: uint64(len(c.arrived))}})
}

// wantAll sends a command to each shard, so that each gets a home.
func (c *cluster) wantAll() {
	for s := range c.Shards {
		c.command(c.nodes[c.w.Rand.IntN(c.Nodes)], shardcore.Shard(s))
	}
}

// send lets a node send commands until it leaves.
func (c *cluster) send(n *node) {
	n.after(c.between(0, 2*every), func() {
		if c.sends && !n.leaving {
			c.command(n, shardcore.Shard(c.w.Rand.IntN(c.Shards))) //nolint:gosec // at most coordinator.MaxShards
			c.send(n)
		}
	})
}

// owns checks the hosted shards of a node after a step: a shard has at most one owner, which was
// stored as its home.
func (n *node) owns() {
	c := n.c
	if n.m.RouteVersion() == n.turn {
		return
	}
	n.turn = n.m.RouteVersion()
	hosted := n.m.Hosted()
	for _, s := range n.hosted {
		if _, still := slices.BinarySearch(hosted, s); !still && c.owners[s] == n {
			c.owners[s] = nil
			c.owned--
		}
	}
	for _, s := range hosted {
		if _, before := slices.BinarySearch(n.hosted, s); before {
			continue
		}
		if other := c.owners[s]; other != nil && other != n {
			c.result.Owners = 2
			c.violate("%v hosts shard %d, and so does %v", n.self, s, other.self)
			continue
		}
		if home, _ := c.store.state.Home(s); home != n.self {
			c.violate("%v hosts shard %d, and its home is stored as %v", n.self, s, home)
		}
		c.owners[s] = n
		c.owned++
		c.result.Owners = max(c.result.Owners, 1)
	}
	n.hosted = hosted
}
