// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// directPaths are the fast paths of a node's shards, used as in package sharding: commands bypass
// the machine if a path accepts them and no earlier ones wait. Commands that are sent while effects
// are applied wait until that is done.
type directPaths struct {
	paths    []shardcore.Path[*entity]
	version  uint64    // route version of the last restriction
	started  []*entity // to be added when the effects are applied
	touched  map[shardcore.Shard]map[string]bool
	applying int
	waiting  []queuedCommand
	waits    map[shardcore.Shard]int // how many of them by shard
}

type queuedCommand struct {
	account *account
	nr      uint64
}

func newDirectPaths(shards int) directPaths {
	return directPaths{
		paths: make([]shardcore.Path[*entity], shards), touched: map[shardcore.Shard]map[string]bool{}, waits: map[shardcore.Shard]int{},
	}
}

// sendCommand sends a command of this node.
func (s *shardNode) sendCommand(a *account, nr uint64) {
	switch {
	case s.waits[a.shard] == 0 && s.sendDirect(a, nr):
	case s.applying > 0:
		s.d.hit("path", "queued")
		s.waits[a.shard]++
		s.waiting = append(s.waiting, queuedCommand{a, nr})
	default:
		s.stepCommand(a.shard, shardcore.Send{Shard: a.shard, Message: shardcore.Message{Entity: a.id, Local: nr}})
	}
}

// sendDirect sends a command by the path of its shard, if that accepts it.
func (s *shardNode) sendDirect(a *account, nr uint64) bool {
	if int(a.shard) >= len(s.paths) {
		return false
	}
	p := &s.paths[a.shard]
	if p.Remote() {
		s.d.hit("path", "to a node")
		packet := region.Packet{
			Type: s.cfg.Region.Type, Frame: region.Frame{Kind: region.Forward, Shard: a.shard}, Entity: a.id, Body: binary.AppendUvarint(nil, nr),
		}
		s.sendPacket(p.Home, link.Kind(shardcore.KindRegion), region.AppendPacket(nil, packet), shardcore.Message{Entity: a.id, Local: nr})
		return true
	}
	e, found := p.Entity(a.id, true)
	if found {
		s.d.hit("path", "to an entity")
		s.deliverDirect(e, nr)
	}
	return found
}

// deliverDirect passes a command to an entity without the machine.
func (s *shardNode) deliverDirect(e *entity, nr uint64) {
	if e.ended || e.stop || e.killed || e.passivating {
		s.violate("entities-in-turn", "a command reaches %s by the fast path after its stop", e.a.id)
	}
	if s.touched[e.at.Shard] == nil {
		s.touched[e.at.Shard] = map[string]bool{}
	}
	s.touched[e.at.Shard][e.a.id] = true
	s.d.delivered(e, nr)
	e.mailbox = append(e.mailbox, nr)
	e.work()
}

// receiveForward handles a command of another node.
func (s *shardNode) receiveForward(in shardcore.Received, p *region.Packet) {
	if int(p.Shard) < len(s.paths) {
		if e, found := s.paths[p.Shard].Entity(p.Entity, false); found {
			s.d.hit("path", "from a peer")
			nr, _ := binary.Uvarint(p.Body)
			s.deliverDirect(e, nr)
			return
		}
	}
	s.stepCommand(p.Shard, in)
}

// stepCommand steps the machine with a command for a shard, and opens the path of the shard.
func (s *shardNode) stepCommand(n shardcore.Shard, in shardcore.Input) {
	if s.gone {
		return
	}
	e := s.m.Step(s.h.p.Now(), in)
	s.restrictPath(n)
	s.applyEffects(e)
	if int(n) < len(s.paths) {
		if r := s.m.DirectRoute(n); s.paths[n].Differs(r) {
			s.paths[n].Open(s.h.p.Node(), r)
		}
	}
}

func (s *shardNode) restrictPath(n shardcore.Shard) {
	if int(n) < len(s.paths) && s.paths[n].IsOpen() {
		p := &s.paths[n]
		p.Own, p.Peers = p.Restricted(s.m.DirectRoute(n))
	}
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

// endEffects adds started entities to their paths, and handles the commands that were sent during
// the effects.
func (s *shardNode) endEffects() {
	for _, e := range s.started {
		if !e.ended && !e.stop && !e.killed && !e.passivating && int(e.at.Shard) < len(s.paths) {
			s.paths[e.at.Shard].Add(e.a.id, e)
		}
	}
	s.started = nil
	if s.applying > 1 {
		s.applying--
		return
	}
	for len(s.waiting) > 0 {
		c := s.waiting[0]
		s.waiting = s.waiting[1:]
		if !s.sendDirect(c.account, c.nr) {
			s.stepCommand(c.account.shard, shardcore.Send{Shard: c.account.shard, Message: shardcore.Message{Entity: c.account.id, Local: c.nr}})
		}
		s.waits[c.account.shard]--
	}
	s.applying--
}

// leavePath removes an entity from its path.
func (s *shardNode) leavePath(e *entity) {
	if n := int(e.at.Shard); n < len(s.paths) && s.paths[n].Entities()[e.a.id] == e {
		s.paths[n].Remove(e.a.id)
	}
}

// reportTouched reports the entities that received commands by the paths.
func (s *shardNode) reportTouched() {
	touched := s.touched
	s.touched = map[shardcore.Shard]map[string]bool{}
	for _, n := range slices.Sorted(maps.Keys(touched)) {
		s.applyEffects(s.m.Touch(s.h.p.Now(), n, slices.Sorted(maps.Keys(touched[n]))))
	}
}
