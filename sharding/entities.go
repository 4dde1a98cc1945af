// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// resident is an incarnation of an entity on this node, as the machine knows it.
//
// It lasts as long as the entity may be in memory. Commands come to entities by the loop, and past it through a gate to those that have a
// seat. So when one has no seat, and is not in memory when the loop looks, it is gone.
type resident struct {
	shardcore.Run

	id          string
	incarnation uint64
	stopping    bool
	resting     bool // is to leave unless it has something to do
	seated      bool
}

// gone is told by the runtime that an entity has left memory. A command may have started it anew.
func (s *site) gone(id string, asked bool) { s.inbox.add(item{gone: id, asked: asked}) }

// startEntity starts an entity. That it has come is told when it is refolded, or that has failed: it is tried again by itself.
func (s *site) startEntity(a *shardcore.Action) {
	r := &resident{Run: a.Run, id: a.Entity, incarnation: a.Incarnation}
	if before := s.residents[r.id]; before != nil { // ShardOf has said something else before: it is one entity, of the last shard
		s.unseat(before)
		s.ended(before, false)
	}
	s.residents[a.Entity] = r
	s.fresh = append(s.fresh, r)
	err := s.entities.Rouse(r.id, func(error) {
		s.inbox.add(item{do: func() {
			if s.residents[r.id] == r {
				s.follows(r, shard.Started{Entity: r.id, Incarnation: r.incarnation})
				s.goOn()
			}
		}})
	})
	if err != nil { // what was for it will be told the same
		s.ended(r, false)
	}
}

// stopEntity lets an entity leave, behind the commands that it has or without them.
func (s *site) stopEntity(a *shardcore.Action, leave func(id string) bool) {
	r := s.residents[a.Entity]
	if r == nil || r.Run != a.Run || r.incarnation != a.Incarnation {
		return // it has left before
	}
	r.stopping = true
	s.unseat(r)
	if !leave(r.id) {
		s.ended(r, false)
	}
}

// restEntity lets an entity leave that nobody needs, unless it has something to do.
func (s *site) restEntity(a *shardcore.Action) {
	r := s.residents[a.Entity]
	if r == nil || r.Run != a.Run || r.incarnation != a.Incarnation {
		return // it has left before
	}
	r.resting = true
	s.unseat(r)
	if !s.entities.Passivate(r.id) {
		s.ended(r, false)
	}
}

// busy is told by the runtime that an entity goes on that was to leave.
func (s *site) busy(id string) {
	s.inbox.add(item{do: func() {
		r := s.residents[id]
		if r == nil || r.stopping || !r.resting {
			return
		}
		r.resting = false
		s.follows(r, shard.Busy{Entity: r.id, Incarnation: r.incarnation})
		s.fresh = append(s.fresh, r)
		s.goOn()
	}})
}

// hasGone takes note that an entity has left memory.
func (s *site) hasGone(id string, asked bool) {
	r := s.residents[id]
	if r == nil {
		return
	}
	seated := r.seated
	s.unseat(r)
	switch {
	case r.stopping && s.entities.Drain(id):
		return // it is there again, and leaves behind the commands that have come
	case !r.stopping && s.entities.InMemory(id):
		if seated { // a command has come past the loop, and it goes on: it must not be stopped, since others may follow
			s.fresh = append(s.fresh, r)
		}
		return
	}
	s.ended(r, asked)
}

// ended tells the machine that nothing of an incarnation runs any more.
func (s *site) ended(r *resident, asked bool) {
	delete(s.residents, r.id)
	if asked && !r.stopping {
		s.follows(r, shard.Passivate{Entity: r.id, Incarnation: r.incarnation})
	}
	r.stopping = true
	s.follows(r, shard.Ended{Entity: r.id, Incarnation: r.incarnation})
}

// follows lets the machine know next.
func (s *site) follows(r *resident, in shard.Input) {
	s.todo = append(s.todo, shardcore.Entities{Run: r.Run, Input: in})
}

// seat lets entities that have come take commands past the loop. All that came for them before stands in their mailboxes.
func (s *site) seat() {
	for _, r := range s.fresh {
		if r.stopping || r.resting || r.seated {
			continue
		}
		g := &s.gates[r.Shard]
		g.mu.Lock()
		if g.seats == nil {
			g.seats = map[string]*seat{}
		}
		g.seats[r.id] = &seat{}
		g.mu.Unlock()
		r.seated = true
	}
	clear(s.fresh)
	s.fresh = s.fresh[:0]
}

// unseat lets commands for an entity come by the loop only.
func (s *site) unseat(r *resident) {
	if !r.seated {
		return
	}
	r.seated = false
	g := &s.gates[r.Shard]
	g.mu.Lock()
	delete(g.seats, r.id)
	g.mu.Unlock()
}
