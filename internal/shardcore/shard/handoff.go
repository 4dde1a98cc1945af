// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore/passivation"
)

// handOff stops the shard after all messages received before.
func (m *Machine) handOff() {
	switch {
	case m.phase == leasing: // another home may get the lease earlier
		m.kill(HandedOff)
	case m.phase == loading && len(m.pending) > 0:
		if !m.handOffPending {
			m.handOffPending, m.deadline = true, m.now+m.cfg.StopTimeout
		}
	case m.phase == loading, m.phase == open:
		m.beginHandOff(m.now + m.cfg.StopTimeout)
	}
}

func (m *Machine) beginHandOff(deadline time.Duration) {
	m.phase, m.reason, m.deadline = handingOff, HandedOff, deadline
	m.unrecovered = nil
	for _, id := range slices.Sorted(maps.Keys(m.entities)) {
		e := m.entities[id]
		switch {
		case e.state == active:
			m.stop(e)
		case len(e.buffer) > 0 || e.runs() || e.state == forgetting:
			// The entity starts, gets its messages, and stops; or its stop is being stored.
		default:
			e.state = resting // do not start it
			delete(m.entities, id)
		}
	}
}

// acquire requests the lease.
func (m *Machine) acquire() { m.acquireAt, m.out.Acquire = passivation.Never, true }

func (m *Machine) kill(reason Reason) {
	if m.phase >= killing {
		return
	}
	m.phase, m.reason = killing, reason
	m.startQueue, m.resting, m.unrecovered = nil, nil, nil
	m.updates.id, m.updates.storing, m.updates.next = 0, change{}, change{}
	clear(m.index.waiting)
	for _, in := range m.pending {
		m.refuse(in.Token, reason)
	}
	m.pending = nil
	for _, id := range slices.Sorted(maps.Keys(m.entities)) {
		e := m.entities[id]
		for _, token := range e.buffer {
			m.refuse(token, reason)
		}
		e.buffer = nil
		if e.runs() {
			m.addAction(Kill, e, 0)
			continue
		}
		delete(m.entities, id)
	}
	m.buffered = 0
}
