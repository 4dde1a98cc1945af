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
type localEntity struct {
	shardcore.ShardRun

	id          string
	incarnation uint64
	stopping    bool
	passivating bool // is to leave unless it has something to do
	hasEntry    bool
}

// gone is told by the runtime that an entity has left memory. A command may have started it anew.
func (s *shell) entityGone(id string, asked bool) {
	s.inbox.add(item{goneEntity: id, requested: asked})
}

// startEntity starts an entity. That it has come is told when it is refolded, or that has failed: it is tried again by itself.
func (s *shell) startEntity(a *shardcore.Action) {
	r := &localEntity{ShardRun: a.ShardRun, id: a.Entity, incarnation: a.Incarnation}
	if before := s.localEntities[r.id]; before != nil { // ShardOf has said something else before: it is one entity, of the last shard
		s.removeEntry(before)
		s.entityEnded(before, false)
	}
	s.localEntities[a.Entity] = r
	s.started = append(s.started, r)
	err := s.entities.Rouse(r.id, func(error) {
		s.inbox.add(item{call: func() {
			if s.localEntities[r.id] == r {
				s.enqueueInput(r, shard.Started{Entity: r.id, Incarnation: r.incarnation})
				s.stepPending()
			}
		}})
	})
	if err != nil { // what was for it will be told the same
		s.entityEnded(r, false)
	}
}

// stopEntity lets an entity leave, behind the commands that it has or without them.
func (s *shell) stopEntity(a *shardcore.Action, leave func(id string) bool) {
	r := s.localEntities[a.Entity]
	if r == nil || r.ShardRun != a.ShardRun || r.incarnation != a.Incarnation {
		return // it has left before
	}
	r.stopping = true
	s.removeEntry(r)
	if !leave(r.id) {
		s.entityEnded(r, false)
	}
}

// passivateEntity lets an entity leave that nobody needs, unless it has something to do.
func (s *shell) passivateEntity(a *shardcore.Action) {
	r := s.localEntities[a.Entity]
	if r == nil || r.ShardRun != a.ShardRun || r.incarnation != a.Incarnation {
		return // it has left before
	}
	r.passivating = true
	s.removeEntry(r)
	if !s.entities.Passivate(r.id) {
		s.entityEnded(r, false)
	}
}

// busy is told by the runtime that an entity goes on that was to leave.
func (s *shell) entityBusy(id string) {
	s.inbox.add(item{call: func() {
		r := s.localEntities[id]
		if r == nil || r.stopping || !r.passivating {
			return
		}
		r.passivating = false
		s.enqueueInput(r, shard.Busy{Entity: r.id, Incarnation: r.incarnation})
		s.started = append(s.started, r)
		s.stepPending()
	}})
}

// handleGone takes note that an entity has left memory.
func (s *shell) handleGone(id string, asked bool) {
	r := s.localEntities[id]
	if r == nil {
		return
	}
	seated := r.hasEntry
	s.removeEntry(r)
	switch {
	case r.stopping && s.entities.Drain(id):
		return // it is there again, and leaves behind the commands that have come
	case !r.stopping && s.entities.InMemory(id):
		if seated { // a command has come past the loop, and it goes on: it must not be stopped, since others may follow
			s.started = append(s.started, r)
		}
		return
	}
	s.entityEnded(r, asked)
}

// ended tells the machine that nothing of an incarnation runs any more.
func (s *shell) entityEnded(r *localEntity, asked bool) {
	delete(s.localEntities, r.id)
	if asked && !r.stopping {
		s.enqueueInput(r, shard.Passivate{Entity: r.id, Incarnation: r.incarnation})
	}
	r.stopping = true
	s.enqueueInput(r, shard.Ended{Entity: r.id, Incarnation: r.incarnation})
}

// follows lets the machine know next.
func (s *shell) enqueueInput(r *localEntity, in shard.Input) {
	s.pendingInputs = append(s.pendingInputs, shardcore.ShardInput{ShardRun: r.ShardRun, Input: in})
}

// seat lets entities that have come take commands past the loop. All that came for them before stands in their mailboxes.
func (s *shell) addEntries() {
	for _, r := range s.started {
		if r.stopping || r.passivating || r.hasEntry {
			continue
		}
		g := &s.paths[r.Shard]
		g.mu.Lock()
		if g.entries == nil {
			g.entries = map[string]*pathEntry{}
		}
		g.entries[r.id] = &pathEntry{}
		g.mu.Unlock()
		r.hasEntry = true
	}
	clear(s.started)
	s.started = s.started[:0]
}

// unseat lets commands for an entity come by the loop only.
func (s *shell) removeEntry(r *localEntity) {
	if !r.hasEntry {
		return
	}
	r.hasEntry = false
	g := &s.paths[r.Shard]
	g.mu.Lock()
	delete(g.entries, r.id)
	g.mu.Unlock()
}
