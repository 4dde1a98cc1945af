// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// place identifies an incarnation of an entity on a node.
type place struct {
	shardcore.ShardRun

	entity      string
	incarnation uint64
}

// entity is an incarnation of an account with its mailbox. It stores all commands of the mailbox at
// once, after those that it has loaded, and replies.
type entity struct {
	s           *shardNode
	at          place
	a           *account
	known       int // number of stored commands it has seen
	loaded      bool
	writing     bool
	onPath      bool
	touched     bool // by the path
	passivating bool // asked to stop if idle, and has not replied
	stop        bool // after the mailbox
	killed      bool
	ended       bool
	mailbox     []uint64
}

// applyAction applies an action to an entity.
func (s *shardNode) applyAction(a shardcore.Action) {
	d := s.d
	at := place{a.ShardRun, a.Entity, a.Incarnation}
	e := s.entities[at]
	d.hit("entity", a.Kind.String())
	switch {
	case a.Kind == shard.Start:
		e = &entity{s: s, at: at, a: d.byID[a.Entity]}
		s.entities[at] = e
		e.a.running = append(e.a.running, e)
		s.started = append(s.started, e)
		oneEntity(e)
		s.rememberedBefore(a)
		s.after(d.storeDelay(), e.load)
	case e == nil:
		s.violate("entities-in-turn", "%v of %s %d, which does not run", a.Kind, a.Entity, a.Incarnation)
	case a.Kind == shard.Pass && (e.stop || e.killed || e.passivating):
		s.violate("entities-in-turn", "a command follows the stop of %s", a.Entity)
	case a.Kind == shard.Pass:
		nr := numberOf(a.Message)
		d.delivered(e, nr)
		e.mailbox = append(e.mailbox, nr)
		e.work()
	case a.Kind == shard.Stop && a.Idle && !d.quiet && d.rand.IntN(3) == 0:
		e.passivating = true
		s.leavePath(e)
		s.after(d.between(0, 20*time.Millisecond), e.stay)
	case a.Kind == shard.Stop:
		e.stop = true
		s.leavePath(e)
		if d.oneIn(50) {
			d.hit("entity", "does not stop")
			e.writing = true
			s.after(d.between(5*time.Second, 40*time.Second), e.end)
			return
		}
		e.work()
	case a.Kind == shard.Kill:
		e.killed = true
		s.leavePath(e)
		s.after(d.between(time.Millisecond, maxStopping), e.end)
	}
}

// load reads the stored commands.
func (e *entity) load() {
	if e.ended {
		return
	}
	if e.s.d.store.failing() && e.s.d.oneIn(3) {
		e.s.d.hit("entity", "load failed")
		e.end()
		return
	}
	e.loaded, e.known = true, len(e.a.stored)
	e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Started{Entity: e.at.entity, Incarnation: e.at.incarnation}})
	e.work()
}

// work stores the commands in the mailbox.
func (e *entity) work() {
	switch {
	case e.ended || e.killed || !e.loaded || e.writing:
	case len(e.mailbox) > 0:
		e.writing = true
		batch, known := e.mailbox, e.known
		e.mailbox = nil
		e.append(batch, known)
	case e.stop:
		e.writing = true // no reply follows
		e.s.after(e.s.d.between(0, 20*time.Millisecond), e.end)
	case e.s.d.rand.IntN(60) == 0:
		e.s.after(0, e.passivate)
	}
}

// passivate asks to be stopped.
func (e *entity) passivate() {
	if !e.ended {
		e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Passivate{Entity: e.at.entity, Incarnation: e.at.incarnation}})
	}
}

// stay reports that the entity has something to do and stays.
func (e *entity) stay() {
	if e.s.handleInbox(); e.ended || e.killed {
		return
	}
	e.s.d.hit("entity", "busy")
	e.passivating = false
	e.s.started = append(e.s.started, e)
	e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Busy{Entity: e.at.entity, Incarnation: e.at.incarnation}})
}

// append stores commands after the loaded ones. It may fail, or succeed late.
func (e *entity) append(batch []uint64, known int) {
	s, d := e.s, e.s.d
	written := func(err string) {
		e.writing = false
		switch {
		case e.ended:
		case err != "":
			d.hit("entity", err)
			d.replyAll(s, batch, failed)
			e.end()
		default:
			e.known += len(batch)
			d.replyAll(s, batch, done)
			e.work()
		}
	}
	delay, how := d.store.fate()
	if how == lands || how == landsUnheard {
		d.w.After(delay, func() {
			stored := e.a.append(d, known, batch)
			if how == landsUnheard {
				return
			}
			s.after(d.between(0, 5*time.Millisecond), func() {
				if stored {
					written("")
				} else {
					written("fenced")
				}
			})
		})
	}
	switch how {
	case fails:
		s.after(delay, func() { written("store failed") })
	case landsUnheard, vanishes:
		s.after(storeTimeout, func() { written("store timed out") })
	case lands:
	}
}

// end ends an incarnation. The commands in its mailbox are lost.
func (e *entity) end() {
	if e.s.handleInbox(); e.ended {
		return
	}
	e.vanish()
	e.s.leavePath(e)
	delete(e.s.entities, e.at)
	e.s.d.replyAll(e.s, e.mailbox, failed)
	e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Ended{Entity: e.at.entity, Incarnation: e.at.incarnation}})
	e.s.h.maybeEnd()
}

// vanish records that an incarnation does not run any more.
func (e *entity) vanish() {
	e.ended = true
	for i, other := range e.a.running {
		if other == e {
			e.a.running = append(e.a.running[:i:i], e.a.running[i+1:]...)
			break
		}
	}
}

// account is an entity and its stored commands, as a journal keeps them.
type account struct {
	id      string
	shard   shardcore.Shard
	stored  []uint64
	running []*entity
}

// append stores commands unless the history has changed.
func (a *account) append(d *sharding, known int, batch []uint64) bool {
	if len(a.stored) != known {
		return false
	}
	for _, nr := range batch {
		if l := d.command(nr); l.stored {
			d.c.violate("stored-once", l.from.h.p.Node(), "command %d for %s is stored once more", nr, a.id)
		} else {
			l.stored = true
		}
	}
	a.stored = append(a.stored, batch...)
	return true
}
