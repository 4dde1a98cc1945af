// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"time"
)

type state uint8

const (
	recovering  state = iota // remembered, and not started yet
	storing                  // the start of the entity is being stored
	queued                   // waits for a start slot
	active                   // runs
	passivating              // requested to stop, may become active again
	stopping                 // requested to stop, because the shard moves
	forgetting               // the stop of the entity is being stored
	resting                  // remembered, waits for its restart
)

type entity struct {
	id          string
	state       state
	incarnation uint64
	starting    bool
	idle        bool // requested to stop because it is idle
	unknown     bool // from the index, to be remembered before it starts
	buffer      []uint64
	restartAt   time.Duration // time of the start if resting; time of the next passivation if busy and idle
}

func (e *entity) runs() bool {
	return e.state == active || e.state == passivating || e.state == stopping
}

// ifRunning calls f with an entity if this incarnation of it runs.
func (m *Machine) ifRunning(r Run, f func(*entity)) {
	if e := m.entities[r.Entity]; e != nil && e.runs() && e.incarnation == r.Incarnation {
		f(e)
	}
}

func (m *Machine) addAction(kind ActionKind, e *entity, token uint64) {
	m.out.Actions = append(m.out.Actions, Action{Kind: kind, Entity: e.id, Incarnation: e.incarnation, Token: token})
}

func (m *Machine) refuse(token uint64, reason Reason) {
	m.out.Refused = append(m.out.Refused, Refusal{token, reason})
}

func (m *Machine) deliver(in Deliver) {
	switch {
	case m.phase == handingOff, m.handOffPending:
		m.refuse(in.Token, HandedOff)
		return
	case m.phase >= killing, m.phase == idle:
		m.refuse(in.Token, max(m.reason, HandedOff))
		return
	}
	e := m.entities[in.Entity]
	if e != nil && e.state == active {
		e.idle = false
		m.addAction(Pass, e, in.Token)
		m.passivateAll(m.tracked.Touch(m.now, e.id))
		return
	}
	if m.buffered >= m.cfg.BufferSize {
		m.refuse(in.Token, BufferFull)
		return
	}
	m.buffered++
	if m.phase == leasing || m.phase == loading {
		m.pending = append(m.pending, in)
		return
	}
	m.enqueue(in)
}

// enqueue buffers a message and starts its entity.
func (m *Machine) enqueue(in Deliver) {
	e := m.entities[in.Entity]
	fresh := e == nil
	if fresh {
		e = &entity{id: in.Entity}
		m.entities[in.Entity] = e
	}
	e.buffer = append(e.buffer, in.Token)
	switch {
	case fresh && m.cfg.Remember:
		m.remember(e)
	case e.state == recovering:
		m.wake(e)
	case fresh, e.state == resting:
		m.enqueueStart(e)
	}
}

// wake starts an entity that was remembered or is in the index.
func (m *Machine) wake(e *entity) {
	if e.unknown {
		e.unknown = false
		m.remember(e)
		return
	}
	m.enqueueStart(e)
}

func (m *Machine) enqueueStart(e *entity) {
	e.state = queued
	m.startQueue = append(m.startQueue, e)
}

func (m *Machine) fillSlots() {
	for len(m.startQueue) > 0 && m.starting < m.cfg.Starts {
		e := m.startQueue[0]
		m.startQueue = m.startQueue[1:]
		if e.state == queued {
			m.start(e)
		}
	}
}

func (m *Machine) start(e *entity) {
	m.incarnations++
	m.starting++
	e.state, e.incarnation, e.starting = active, m.incarnations, true
	indexed := m.inIndex(e.id)
	m.out.Actions = append(m.out.Actions, Action{Kind: Start, Entity: e.id, Incarnation: e.incarnation, Indexed: indexed})
	if indexed && len(e.buffer) == 0 { // without a message, only this use lets it leave memory
		m.passivateAll(m.tracked.Touch(m.now, e.id))
	}
	m.passBuffered(e)
}

func (m *Machine) started(e *entity) {
	if e.starting {
		e.starting = false
		m.starting--
	}
}

func (m *Machine) passivateAll(ids []string) {
	for _, id := range ids {
		if e := m.entities[id]; e != nil {
			m.passivate(e, true)
		}
	}
}

// passivate stops an entity on its request, or because it is idle.
func (m *Machine) passivate(e *entity, idle bool) {
	if e.state == active && m.phase == open {
		m.tracked.Remove(e.id)
		e.state, e.idle = passivating, idle
		m.out.Actions = append(m.out.Actions, Action{Kind: Stop, Entity: e.id, Incarnation: e.incarnation, Idle: idle})
	}
}

func (m *Machine) busy(e *entity) {
	if e.state != passivating || !e.idle || m.phase >= killing {
		return
	}
	e.state = active
	if len(e.buffer) == 0 && m.phase == open {
		e.restartAt = m.now + busyRetry
		m.busyIdle = append(m.busyIdle, e)
		return
	}
	m.passBuffered(e)
}

// busyRetry is the time after which a busy idle entity is requested to stop again. Until its next
// message, the entity does not count for the passivation limit.
const busyRetry = 30 * time.Second

func (m *Machine) retryPassivation() {
	for len(m.busyIdle) > 0 {
		e := m.busyIdle[0]
		waits := e.state == active && e.idle
		if waits && m.now < e.restartAt {
			return
		}
		if m.busyIdle = m.busyIdle[1:]; waits {
			m.passivate(e, true)
		}
	}
}

func (m *Machine) passBuffered(e *entity) {
	var idle []string
	for _, token := range e.buffer {
		e.idle = false
		m.addAction(Pass, e, token)
		idle = append(idle, m.tracked.Touch(m.now, e.id)...)
	}
	m.buffered -= len(e.buffer)
	e.buffer = nil
	if m.phase == handingOff {
		m.stop(e)
	}
	m.passivateAll(idle)
}

func (m *Machine) stop(e *entity) {
	m.tracked.Remove(e.id)
	e.state = stopping
	m.addAction(Stop, e, 0)
}

func (m *Machine) ended(e *entity) {
	m.started(e)
	m.tracked.Remove(e.id)
	e.idle = false // the incarnation has ended, so no request to stop is pending
	switch {
	case m.phase == killing, e.state == stopping:
		delete(m.entities, e.id)
	case e.state == passivating && m.cfg.Remember:
		e.state = forgetting
		m.updates.next.stopped = append(m.updates.next.stopped, e)
	case e.state == passivating && len(e.buffer) > 0:
		m.enqueueStart(e)
	case e.state == active && (m.cfg.Remember || m.phase == open && m.hasWork(e.id)):
		e.state, e.restartAt = resting, m.now+m.cfg.RestartBackoff
		m.resting = append(m.resting, e)
	default:
		delete(m.entities, e.id)
	}
}

// Touch reports entities that received messages on the fast path. Entities that do not run are
// ignored.
func (m *Machine) Touch(now time.Duration, entities []string) Effects {
	m.now = max(m.now, now)
	for _, id := range entities {
		if e := m.entities[id]; e != nil && e.state == active {
			e.idle = false
			m.passivateAll(m.tracked.Touch(m.now, id))
		}
	}
	return m.takeEffects()
}
