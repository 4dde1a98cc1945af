// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import "time"

// updates are the pending changes of remembered entities. One update is stored at a time.
type updates struct {
	ids           uint64
	id            uint64 // of the update that is being stored; 0 means none
	due           time.Duration
	storing, next change
}

type change struct{ started, stopped []*entity }

// remember stores the start of an entity before the entity runs.
func (m *Machine) remember(e *entity) {
	e.state = storing
	m.updates.next.started = append(m.updates.next.started, e)
}

func (m *Machine) store() {
	u := &m.updates
	if u.id != 0 || len(u.next.started)+len(u.next.stopped) == 0 || m.phase >= killing {
		return
	}
	u.ids++
	u.id, u.due = u.ids, m.now+m.cfg.UpdateTimeout
	u.storing, u.next = u.next, change{}
	m.out.Update = &Update{ID: u.id, Started: names(u.storing.started), Stopped: names(u.storing.stopped)}
}

func names(entities []*entity) []string {
	var ids []string
	for _, e := range entities {
		ids = append(ids, e.id)
	}
	return ids
}

func (m *Machine) updated(id uint64) {
	u := &m.updates
	if id != u.id || id == 0 || m.phase >= killing {
		return
	}
	done := u.storing
	u.id, u.storing = 0, change{}
	for _, e := range done.stopped {
		if len(e.buffer) > 0 {
			m.remember(e) // messages have arrived for it
			continue
		}
		delete(m.entities, e.id)
	}
	for _, e := range done.started {
		m.enqueueStart(e)
	}
	m.fillSlots()
}

func (m *Machine) loaded(ids []string) {
	if m.phase != loading {
		return
	}
	m.phase = open
	defer m.wakeIndexed()
	for _, id := range ids {
		if m.entities[id] == nil {
			e := &entity{id: id}
			m.entities[id] = e
			m.unrecovered = append(m.unrecovered, e)
		}
	}
	pending := m.pending
	m.pending = nil
	for _, in := range pending {
		m.enqueue(in)
	}
	if m.handOffPending {
		m.handOffPending = false
		m.beginHandOff(m.deadline)
		return
	}
	if !m.cfg.RecoverOnRequest {
		m.recover(len(m.unrecovered))
	}
}

// recover starts up to n entities, remembered or of the index, that no message has started.
func (m *Machine) recover(n int) {
	for n > 0 && len(m.unrecovered) > 0 {
		e := m.unrecovered[0]
		if m.unrecovered = m.unrecovered[1:]; e.state == recovering {
			m.wake(e)
			n--
		}
	}
}
