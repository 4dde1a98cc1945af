// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore/passivation"
)

// index is the index of the entities with pending work. An entity is in the index before it has
// acknowledged work. It is removed some time after its work has ended. One call of the store runs at
// a time.
type index struct {
	state indexState
	ids   uint64
	call  uint64 // ID of the call that runs; 0 means none
	// retryAt is the time of the next load, if the index is not loaded and no load runs.
	retryAt time.Duration
	loads   bool // the first load is complete

	has     map[string]struct{} // entities in the stored index, without those that an update removes
	waiting map[string]struct{} // entities that wait for their entry
	settled map[string]struct{} // entities in has to be removed
	// removeAt is the time of their removal.
	removeAt time.Duration
	adding   []string // by the update that runs
	starts   []string // loaded entities, until the remembered entities are loaded
}

type indexState uint8

const (
	indexOff indexState = iota
	indexMissing
	indexLoading
	indexReady
	indexUpdating
)

// removeDelay is the time for which entities that are to be removed from the index are collected.
const removeDelay = 10 * time.Second

func (m *Machine) openIndex() {
	if m.cfg.Index {
		m.index = index{state: indexMissing, retryAt: m.now, has: map[string]struct{}{}, waiting: map[string]struct{}{}, settled: map[string]struct{}{}}
	}
}

// pendingWork handles an entity that waits for its entry.
func (m *Machine) pendingWork(id string) {
	x := &m.index
	if x.state == indexOff {
		return
	}
	delete(x.settled, id)
	if _, found := x.has[id]; found && (x.state == indexReady || x.state == indexUpdating) {
		m.out.Indexed = append(m.out.Indexed, id)
		return
	}
	x.waiting[id] = struct{}{}
}

// workSettled handles an entity that has no work and all of whose events are stored.
func (m *Machine) workSettled(id string) {
	x := &m.index
	delete(x.waiting, id)
	if _, found := x.has[id]; !found {
		return
	}
	if len(x.settled) == 0 {
		x.removeAt = m.now + removeDelay
	}
	x.settled[id] = struct{}{}
}

// inIndex reports whether an entity that starts is in the index. The entry then stays until the
// entity reports that its work is settled.
func (m *Machine) inIndex(id string) bool {
	_, found := m.index.has[id]
	delete(m.index.settled, id)
	return found
}

// hasWork reports whether the index expects an entity to have work.
func (m *Machine) hasWork(id string) bool {
	_, found := m.index.has[id]
	_, settled := m.index.settled[id]
	return found && !settled
}

func (m *Machine) indexLoaded(in IndexLoaded) {
	x := &m.index
	if in.ID != x.call || x.state != indexLoading {
		return
	}
	x.call, x.state = 0, indexReady
	clear(x.has)
	clear(x.settled)
	for _, id := range in.Entities {
		x.has[id] = struct{}{}
	}
	m.release(slices.Sorted(maps.Keys(x.waiting)))
	if !x.loads {
		x.loads, x.starts = true, in.Entities
		m.wakeIndexed()
	}
}

func (m *Machine) indexUpdated(id uint64) {
	x := &m.index
	if id != x.call || x.state != indexUpdating {
		return
	}
	added := x.adding
	x.call, x.state, x.adding = 0, indexReady, nil
	for _, id := range added {
		x.has[id] = struct{}{}
	}
	m.release(added)
}

// release lets entities continue that wait for their entry and have it.
func (m *Machine) release(ids []string) {
	for _, id := range ids {
		_, waits := m.index.waiting[id]
		if _, found := m.index.has[id]; waits && found {
			delete(m.index.waiting, id)
			m.out.Indexed = append(m.out.Indexed, id)
		}
	}
}

// indexFailed handles a failed call. The entities continue to wait, and the index is loaded again
// before the next update. Another owner of the shard ends it.
func (m *Machine) indexFailed(in IndexFailed) {
	x := &m.index
	if in.ID != x.call || in.ID == 0 {
		return
	}
	x.call, x.state, x.adding, x.retryAt = 0, indexMissing, nil, m.now+m.cfg.IndexRetry
	if in.Fenced {
		m.kill(Failed)
	}
}

// callIndex requests the next call of the store.
func (m *Machine) callIndex() {
	x := &m.index
	if x.call != 0 || m.phase == idle || m.phase == killing || m.phase == releasing || m.phase == ended {
		return
	}
	switch {
	case x.state == indexMissing && m.now >= x.retryAt && (m.phase != handingOff || len(x.waiting) > 0):
		x.state = indexLoading
		m.out.Index = &IndexCall{ID: m.nextIndexCall()}
	case x.state == indexReady && (len(x.waiting) > 0 || m.phase != handingOff && len(x.settled) > 0 && m.now >= x.removeAt):
		x.state = indexUpdating
		x.adding = slices.Sorted(maps.Keys(x.waiting))
		removed := slices.Sorted(maps.Keys(x.settled))
		for _, id := range removed {
			delete(x.has, id)
		}
		clear(x.settled)
		m.out.Index = &IndexCall{ID: m.nextIndexCall(), Update: &Update{Started: x.adding, Stopped: removed}}
	}
}

func (m *Machine) nextIndexCall() uint64 {
	m.index.ids++
	m.index.call = m.index.ids
	return m.index.call
}

// nextIndex returns the time of the next call of the store.
func (m *Machine) nextIndex() time.Duration {
	x := &m.index
	switch {
	case m.phase == killing, m.phase == releasing, m.phase == ended, x.call != 0:
	case x.state == indexMissing && (m.phase != handingOff || len(x.waiting) > 0):
		return x.retryAt
	case x.state == indexReady && len(x.settled) > 0 && m.phase != handingOff:
		return x.removeAt
	}
	return passivation.Never
}

// wakeIndexed prepares the start of the loaded entities.
func (m *Machine) wakeIndexed() {
	if m.phase == loading { // until the remembered entities are known
		return
	}
	ids := m.index.starts
	m.index.starts = nil
	if m.phase != open {
		return
	}
	for _, id := range ids {
		if m.entities[id] == nil {
			e := &entity{id: id, unknown: m.cfg.Remember}
			m.entities[id] = e
			m.unrecovered = append(m.unrecovered, e)
		}
	}
	if !m.cfg.RecoverOnRequest {
		m.recover(len(m.unrecovered))
	}
}
