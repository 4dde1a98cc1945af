// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rolling_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/sharding/allocation"
)

// node is a process: the counterpart of the shell in package sharding.
type node struct {
	c       *cluster
	nr      int
	self    identity.Node
	version identity.Version
	m       *shardcore.Machine

	members            uint64    // version of the membership that the node has learned
	alarm              env.Alarm // calls Tick
	leaving            bool
	gone               bool
	awaits             uint64 // membership version after which then is called
	then               func() // called when the node learns the version awaits
	regionStopped      func() // called when the region has stopped
	coordinatorStopped func() // called when the coordinator has stopped
	hosted             []shardcore.Shard
	routes             uint64 // route version of the last check
	entities           map[place]bool
}

func (n *node) step(in shardcore.Input) {
	if !n.gone {
		n.applyEffects(n.m.Step(n.c.w.Now(), in))
	}
}

func (n *node) after(d time.Duration, f func()) {
	n.c.w.After(d, func() {
		if !n.gone {
			f()
		}
	})
}

func (n *node) applyEffects(e shardcore.Effects) {
	c := n.c
	c.result.Steps++
	for i := range e.Notes {
		c.noted(&e.Notes[i])
	}
	for _, m := range e.Malformed {
		c.violate("%v cannot read a message of %v: %v", n.self, m.From, m.Err)
	}
	c.result.Refused += len(e.Refused)
	for _, a := range e.Actions {
		n.act(a)
	}
	n.callStores(&e)
	n.owns()
	for i := range e.Send {
		n.send(&e.Send[i])
	}
	if f := n.coordinatorStopped; e.CoordinatorStopped && f != nil {
		n.coordinatorStopped = nil
		c.w.After(0, f)
	}
	if f := n.regionStopped; e.Stopped && f != nil {
		n.regionStopped = nil
		c.w.After(0, f)
	}
	n.alarm.Set(n.m.Next, c.w.Now, n.after, func() { n.applyEffects(n.m.Tick(c.w.Now())) })
}

func (c *cluster) noted(note *coordinator.Note) {
	switch {
	case note.Kind == coordinator.PhaseChanged && note.Phase == coordinator.Active:
		c.result.Coordinators++
	case note.Kind == coordinator.HandOffFailed:
		c.result.Failed += len(note.Shards)
	case note.Kind == coordinator.HandOffDone && c.begun:
		c.result.HandOffs += len(note.Shards)
		for _, s := range note.Shards {
			c.moves[s]++
			c.result.Most = max(c.result.Most, c.moves[s])
		}
	}
}

func (n *node) callStores(e *shardcore.Effects) {
	if e.Load != 0 {
		n.replyLater(coordinator.Loaded{ID: e.Load, State: n.c.state, Rev: n.c.rev})
	}
	if e.Save != nil {
		n.replyLater(n.c.save(*e.Save))
	}
	if ask := e.Ask; ask != nil {
		n.replyLater(coordinator.HomesChosen{ID: ask.ID, Homes: allocation.All(ask.View, ask.Requests, allocation.LeastShards{}.Allocate)})
	}
	if ask := e.Rebalance; ask != nil {
		n.replyLater(coordinator.Rebalanced{ID: ask.ID, Shards: allocation.LeastShards{}.Rebalance(ask.View)})
	}
}

func (n *node) replyLater(in coordinator.Input) {
	n.after(n.c.between(200*time.Microsecond, 10*time.Millisecond), func() { n.step(shardcore.CoordinatorReply{Input: in}) })
}

// send sends a frame to another node. Frames between regions keep their order because they have the
// same delay.
func (n *node) send(o *shardcore.Outgoing) {
	c, delay := n.c, n.c.delay()
	to := c.byNode[o.To]
	if to == nil {
		return
	}
	if o.Kind == shardcore.KindRegion {
		delay = time.Millisecond + time.Duration((n.nr*31+to.nr*17)%4001)*time.Microsecond
	}
	var body []byte
	if nr, ok := o.Message.Local.(uint64); ok {
		body = binary.AppendUvarint(nil, nr)
	}
	in := shardcore.Received{From: n.self, Kind: o.Kind, Data: o.Encoded(body)}
	to.after(delay, func() { to.step(in) })
}

func (n *node) end() {
	if len(n.m.Hosted()) > 0 || len(n.entities) > 0 || n.m.Waiting() > 0 {
		n.c.violate("%v ends while it hosts the shards %v", n.self, n.m.Hosted())
	}
	n.gone = true
	delete(n.c.byNode, n.self)
}

// save stores a change at once if it is based on the stored state. The reply is delayed.
func (c *cluster) save(save coordinator.Save) coordinator.Input {
	if save.Rev != c.rev || save.Term < c.state.Term() {
		return coordinator.SaveFailed{ID: save.ID, Fenced: save.Term < c.state.Term()}
	}
	after, err := c.state.Apply(save.Events...)
	if err != nil || !after.Equal(save.After) {
		c.violate("after %d events the stored state differs from the coordinator's: %v", c.rev, err)
	}
	c.state, c.rev = after, c.rev+uint64(len(save.Events))
	return coordinator.Saved{ID: save.ID}
}

// spread returns the difference between the most and the fewest shards of a region.
func (c *cluster) spread() int {
	least, most := math.MaxInt, 0
	for _, r := range c.state.Regions() {
		least, most = min(least, len(r.Shards)), max(most, len(r.Shards))
	}
	return max(0, most-least)
}

// every is the mean interval at which a node sends a command to a random entity.
const every = 5 * time.Second

// place identifies an incarnation of an entity. Each shard has one entity, with the number of the
// shard.
type place struct {
	shardcore.ShardRun

	incarnation uint64
}

func (n *node) act(a shardcore.Action) {
	c, at := n.c, place{a.ShardRun, a.Incarnation}
	if a.Kind != shard.Start && !n.entities[at] {
		c.violate("%v for an entity of shard %d that does not run on %v", a.Kind, a.Shard, n.self)
	}
	report := func(in shard.Input) func() {
		return func() { n.step(shardcore.ShardInput{ShardRun: a.ShardRun, Input: in}) }
	}
	switch a.Kind {
	case shard.Start:
		if other := c.living[a.Shard]; other != nil {
			c.violate("the entity of shard %d starts on %v while it runs on %v", a.Shard, n.self, other.self)
		}
		c.living[a.Shard], n.entities[at] = n, true
		n.after(c.between(time.Millisecond, 10*time.Millisecond), report(shard.Started{Entity: a.Entity, Incarnation: a.Incarnation}))
	case shard.Pass:
		c.delivered(a.Message)
	case shard.Stop, shard.Kill:
		n.after(c.between(time.Millisecond, 20*time.Millisecond), func() {
			if n.entities[at] {
				delete(n.entities, at)
				c.living[a.Shard] = nil
				report(shard.Ended{Entity: a.Entity, Incarnation: a.Incarnation})()
			}
		})
	}
}

func (c *cluster) delivered(m shardcore.Message) {
	nr, local := m.Local.(uint64)
	if !local {
		nr, _ = binary.Uvarint(m.Body)
	}
	if nr == 0 || nr > uint64(len(c.arrived)) || c.arrived[nr-1] {
		c.violate("command %d is delivered twice or was never sent", nr)
		return
	}
	c.arrived[nr-1] = true
	c.result.Delivered++
}

func (c *cluster) command(from *node, s shardcore.Shard) {
	c.arrived = append(c.arrived, false)
	c.result.Commands++
	from.step(shardcore.Send{Shard: s, Message: shardcore.Message{Entity: strconv.Itoa(int(s)), Local: uint64(len(c.arrived))}})
}

func (c *cluster) send(n *node) {
	n.after(c.between(0, 2*every), func() {
		if c.sends && !n.leaving {
			c.command(n, shardcore.Shard(c.w.Rand.IntN(c.Shards)))
			c.send(n)
		}
	})
}

// owns checks the hosted shards of a node after a step: a shard has at most one owner, which was
// stored as its home.
func (n *node) owns() {
	c := n.c
	if n.m.RouteVersion() == n.routes {
		return
	}
	n.routes = n.m.RouteVersion()
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
			c.violate("%v and %v both host shard %d", n.self, other.self, s)
			continue
		}
		if home, _ := c.state.Home(s); home != n.self {
			c.violate("%v hosts shard %d, whose stored home is %v", n.self, s, home)
		}
		c.owners[s] = n
		c.owned++
		c.result.Owners = max(c.result.Owners, 1)
	}
	n.hosted = hosted
}
