// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// localEntity is an incarnation of an entity on this node, as the machine tracks it.
//
// It exists as long as the entity may be in memory. Commands reach the entity through the loop, or
// directly through an entry of the fast path. If the entity has no entry and is not in memory when
// the loop checks, it has ended.
type localEntity struct {
	shardcore.ShardRun

	id          string
	incarnation uint64
	stopping    bool
	passivating bool // requested to stop unless it has work to do
	hasEntry    bool
}

// entityGone is called by the runtime when an entity has left memory. A command may have started
// the entity again. asked is true if the entity requested the passivation itself.
func (s *shell) entityGone(id string, asked bool) {
	s.post(func() {
		if r := s.localEntities[id]; r != nil {
			s.handleGone(r, asked)
		}
		s.stepPending()
	})
}

// startEntity starts an entity. The machine gets Started after the recovery has succeeded or
// failed; the runtime retries a failed recovery.
func (s *shell) startEntity(a *shardcore.Action) {
	r := &localEntity{ShardRun: a.ShardRun, id: a.Entity, incarnation: a.Incarnation}
	if before := s.localEntities[r.id]; before != nil { // ShardOf is not deterministic: the entity belongs to the last shard
		s.removeEntry(before)
		s.entityEnded(before, false)
	}
	s.localEntities[a.Entity] = r
	s.started = append(s.started, r)
	err := s.host().Rouse(r.id, a.Indexed, func(error) {
		s.post(func() {
			if s.localEntities[r.id] == r {
				s.enqueueInput(r, shard.Started{Entity: r.id, Incarnation: r.incarnation})
				s.stepPending()
			}
		})
	})
	if err != nil { // the commands of the entity fail with the same error
		s.entityEnded(r, false)
	}
}

// stopEntity passivates, drains or kills an entity with leave, which returns false if the entity is
// not in memory.
func (s *shell) stopEntity(a *shardcore.Action, leave func(id string) bool) {
	r := s.localEntities[a.Entity]
	if r == nil || r.ShardRun != a.ShardRun || r.incarnation != a.Incarnation {
		return // it has already left
	}
	if a.Idle {
		r.passivating = true
	} else {
		r.stopping = true
	}
	s.removeEntry(r)
	if !leave(r.id) {
		s.entityEnded(r, false)
	}
}

// entityBusy is called by the runtime when an entity stays in memory although it was requested to
// leave.
func (s *shell) entityBusy(id string) {
	s.post(func() {
		r := s.localEntities[id]
		if r == nil || r.stopping || !r.passivating {
			return
		}
		r.passivating = false
		s.enqueueInput(r, shard.Busy{Entity: r.id, Incarnation: r.incarnation})
		s.started = append(s.started, r)
		s.stepPending()
	})
}

func (s *shell) handleGone(r *localEntity, asked bool) {
	seated := r.hasEntry
	s.removeEntry(r)
	if r.stopping {
		if s.host().Drain(r.id) {
			return // a new command has started the entity again: the entity handles its mailbox before it stops
		}
	} else if again, _ := s.host().InMemory(r.id); again {
		if seated { // a command arrived on the fast path: keep the entity running, because other commands may follow
			s.started = append(s.started, r)
		}
		return
	}
	s.entityEnded(r, asked)
}

func (s *shell) entityEnded(r *localEntity, asked bool) {
	delete(s.localEntities, r.id)
	delete(s.indexWaiters, r.id) // the entity has ended
	if asked && !r.stopping {
		s.enqueueInput(r, shard.Passivate{Entity: r.id, Incarnation: r.incarnation})
	}
	r.stopping = true
	s.enqueueInput(r, shard.Ended{Entity: r.id, Incarnation: r.incarnation})
}

func (s *shell) enqueueInput(r *localEntity, in shard.Input) {
	s.pendingInputs = append(s.pendingInputs, shardcore.ShardInput{ShardRun: r.ShardRun, Input: in})
}

// addEntries opens the fast path for entities that have started. All earlier commands are already
// in their mailboxes.
func (s *shell) addEntries() {
	for _, r := range s.started {
		if r.stopping || r.passivating || r.hasEntry {
			continue
		}
		g := &s.paths[r.Shard]
		g.mu.Lock()
		g.Add(r.id, &used{})
		g.mu.Unlock()
		r.hasEntry = true
	}
	clear(s.started)
	s.started = s.started[:0]
}

func (s *shell) removeEntry(r *localEntity) {
	if !r.hasEntry {
		return
	}
	r.hasEntry = false
	g := &s.paths[r.Shard]
	g.mu.Lock()
	g.Remove(r.id)
	g.mu.Unlock()
}
