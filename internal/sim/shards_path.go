// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// directPaths are the fast paths of a node's shards, used as in package sharding: commands bypass
// the machine if a path accepts them and no earlier ones wait. The others wait for the loop, which
// handles them some time later, or before the next other input.
type directPaths struct {
	paths    []shardcore.Path[*entity, queuedCommand]
	version  uint64    // route version of the last restriction
	started  []*entity // to be added when the effects are applied
	applying int
	inbox    []queuedCommand // for each command in a queue one entry with its shard and origin
}

// queuedCommand is a command that waits for the loop.
type queuedCommand struct {
	shard   shardcore.Shard
	from    shardcore.Origin
	account *account // of a command of this node
	nr      uint64
	peer    shardcore.Forwarded
}

func newDirectPaths(shards int) directPaths {
	return directPaths{paths: make([]shardcore.Path[*entity, queuedCommand], shards)}
}

// handleCommand sends a command by the path of its shard, or queues it.
func (s *shardNode) handleCommand(c queuedCommand) {
	if int(c.shard) >= len(s.paths) {
		s.step(c.input())
		return
	}
	p := &s.paths[c.shard]
	if !p.Waiting(c.from) && s.pass(c) {
		return
	}
	s.d.hit("path", "queued")
	p.Wait(c.from, c)
	if s.inbox = append(s.inbox, c); len(s.inbox) == 1 {
		s.after(time.Duration(s.d.rand.IntN(int(2*time.Millisecond))), s.handleInbox)
	}
}

// handleInbox handles the queued commands.
func (s *shardNode) handleInbox() {
	for len(s.inbox) > 0 && s.applying == 0 && !s.gone {
		at := s.inbox[0]
		s.inbox = s.inbox[1:]
		p := &s.paths[at.shard]
		c, found := p.Pass(at.from, s.pass)
		if !found {
			continue
		}
		e := s.m.Step(s.h.p.Now(), c.input())
		s.restrictPath(c.shard)
		s.applyEffects(e)
		p.Set(s.m.DirectRoute(c.shard))
		p.Done(c.from)
	}
	s.h.maybeEnd()
}

// input returns the command for the machine.
func (c *queuedCommand) input() shardcore.Input {
	if c.from == shardcore.Peers {
		return c.peer
	}
	return shardcore.Send{Shard: c.shard, Message: shardcore.Message{Entity: c.account.id, Local: c.nr}}
}

// pass sends a command by the path of its shard, if that accepts it.
func (s *shardNode) pass(c queuedCommand) bool {
	id := c.peer.Packet.Entity
	if c.from == shardcore.Own {
		id = c.account.id
	}
	p := &s.paths[c.shard]
	e, to := p.Target(c.from, id)
	switch to {
	case shardcore.NoTarget:
		return false
	case shardcore.ToHome:
		s.d.hit("path", "to a node")
		packet := region.Packet{
			Type: s.cfg.Region.Type, Frame: region.Frame{Kind: region.Forward, Shard: c.shard}, Entity: id, Body: binary.AppendUvarint(nil, c.nr),
		}
		s.sendPacket(p.Home(), link.Kind(shardcore.KindRegion), region.AppendPacket(nil, packet), shardcore.Message{Entity: id, Local: c.nr})
		return true
	case shardcore.ToEntity:
		e.touched = true
	}
	if e.ended || e.stop || e.killed || e.passivating {
		s.violate("entities-in-turn", "a command reaches %s by the fast path after its stop", id)
	}
	s.d.hit("path", []string{"to an entity", "from a peer"}[c.from])
	s.d.delivered(e, c.nr)
	e.mailbox = append(e.mailbox, c.nr)
	e.work()
	return true
}

func (s *shardNode) restrictPath(n shardcore.Shard) {
	s.paths[n].Set(s.paths[n].Restricted(s.m.DirectRoute(n)))
}

// beginEffects restricts the paths whose routes may have changed.
func (s *shardNode) beginEffects() {
	s.applying++
	if v := s.m.RouteVersion(); v != s.version {
		s.version = v
		for n := range s.paths {
			s.restrictPath(shardcore.Shard(n))
		}
	}
}

// interleave lets a client send a command between two effects, when the shell holds no lock.
func (s *shardNode) interleave(n shardcore.Shard) {
	d := s.d
	if d.quiet || d.closing || !s.sends() || int(n) >= d.plan.Shards || d.rand.IntN(8) != 0 {
		return
	}
	d.hit("path", "between effects")
	nr := s.write(d.accounts[int(n)*d.plan.Entities+d.rand.IntN(d.plan.Entities)])
	s.after(d.between(5*time.Second, 40*time.Second), func() { s.close(nr, unknown) })
}

// endEffects adds started entities to their paths.
func (s *shardNode) endEffects() {
	for _, e := range s.started {
		if !e.ended && !e.stop && !e.killed && !e.passivating && int(e.at.Shard) < len(s.paths) {
			s.paths[e.at.Shard].Add(e.a.id, e)
			e.onPath = true
		}
	}
	s.started = nil
	s.applying--
}

// leavePath removes an entity from its path.
func (s *shardNode) leavePath(e *entity) {
	if e.onPath {
		s.paths[e.at.Shard].Remove(e.a.id)
	}
	e.onPath = false
}

// takeTouched reports whether the entity was touched since the last call.
func (e *entity) takeTouched() bool {
	was := e.touched
	e.touched = false
	return was
}

// reportTouched reports the entities that received commands by the paths.
func (s *shardNode) reportTouched() {
	for n := range s.paths {
		if ids := s.paths[n].Touched((*entity).takeTouched); len(ids) > 0 {
			s.applyEffects(s.m.Touch(s.h.p.Now(), shardcore.Shard(n), ids))
		}
	}
}
