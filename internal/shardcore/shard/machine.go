// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore/passivation"
)

type phase uint8

const (
	idle    phase = iota // before Open
	leasing              // waits for the lease
	loading
	open
	handingOff
	killing
	releasing // all entities have ended, and the lease is being released
	ended
)

// Machine is the state machine of one shard. Each step gets the time of the node's monotonic clock
// and returns effects. It is not safe for concurrent use. Its results are immutable.
type Machine struct {
	cfg            Config
	phase          phase
	reason         Reason // reason of the end
	handOffPending bool   // a hand-off waits for the load
	now            time.Duration
	out            Effects
	deadline       time.Duration
	acquireAt      time.Duration // next attempt to acquire the lease, Never while a call runs

	entities     map[string]*entity
	tracked      *passivation.Entities
	buffered     int
	pending      []Deliver // messages during the load
	incarnations uint64
	starting     int
	startQueue   []*entity // wait for a start slot; entities in other states are skipped
	resting      []*entity // sorted by the time of the restart; entities in other states are skipped
	busyIdle     []*entity // idle, but with pending work; entities in other states are skipped
	unrecovered  []*entity // remembered, and not started yet
	updates      updates
	index        index
}

// New returns a machine. The error matches ErrInvalid or passivation.ErrInvalid and names each
// invalid field.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	tracked, err := passivation.New(cfg.Passivation, cfg.Entities)
	if err != nil {
		return nil, fmt.Errorf("shard: Config.Passivation: %w", err)
	}
	return &Machine{cfg: cfg, tracked: tracked, entities: map[string]*entity{}}, nil
}

// Open starts the shard. It is the first call.
func (m *Machine) Open(now time.Duration) Effects {
	m.now = now
	switch {
	case m.phase != idle:
	case m.cfg.Lease:
		m.phase = leasing
		m.acquire()
	default:
		m.open()
	}
	return m.takeEffects()
}

// open accepts messages, or loads the remembered entities first.
func (m *Machine) open() {
	m.phase = open
	m.openIndex()
	if m.cfg.Remember {
		m.phase, m.out.Load = loading, true
		return
	}
	for _, in := range m.pending {
		m.enqueue(in)
	}
	m.pending = nil
}

// Step handles an input. The time has any origin and never decreases.
func (m *Machine) Step(now time.Duration, in Input) Effects {
	m.now = max(m.now, now)
	switch in := in.(type) {
	case LeaseHeld:
		if m.phase == leasing {
			m.open()
		}
	case LeaseDenied:
		if m.phase == leasing {
			m.acquireAt = m.now + m.cfg.LeaseRetry
		}
	case LeaseLost:
		m.kill(Failed)
	case LeaseReleased:
		if m.phase == releasing {
			m.phase, m.out.Done = ended, m.reason
		}
	case Loaded:
		m.loaded(in.Entities)
	case LoadFailed:
		if m.phase == loading {
			m.kill(Failed)
		}
	case Deliver:
		m.deliver(in)
	case Started:
		m.ifRunning(Run(in), m.started)
	case Ended:
		m.ifRunning(Run(in), m.ended)
	case Passivate:
		m.ifRunning(Run(in), func(e *entity) { m.passivate(e, false) })
	case Busy:
		m.ifRunning(Run(in), m.busy)
	case Updated:
		m.updated(in.ID)
	case UpdateFailed:
		if in.ID == m.updates.id && in.ID != 0 {
			m.kill(Failed)
		}
	case PendingWork:
		m.pendingWork(in.Entity)
	case WorkSettled:
		m.workSettled(in.Entity)
	case IndexLoaded:
		m.indexLoaded(in)
	case IndexUpdated:
		m.indexUpdated(in.ID)
	case IndexFailed:
		m.indexFailed(in)
	case HandOff:
		m.handOff()
	case Abort:
		m.kill(Failed)
	case Recover:
		if m.phase == open && m.cfg.RecoverOnRequest {
			m.recover(in.Number)
		}
	case Limits:
		m.cfg.Starts = max(1, in.Starts)
		m.passivateAll(m.tracked.SetLimit(max(0, in.Entities)))
	}
	return m.takeEffects()
}

// Tick runs everything that is due.
func (m *Machine) Tick(now time.Duration) Effects {
	m.now = max(m.now, now)
	switch {
	case m.phase == handingOff && m.now >= m.deadline:
		m.kill(HandedOff)
	case m.phase == loading && m.handOffPending && m.now >= m.deadline:
		m.kill(HandedOff)
	case m.updates.id != 0 && m.now >= m.updates.due:
		m.kill(Failed)
	case m.phase == leasing && m.now >= m.acquireAt:
		m.acquire()
	}
	if m.phase == open {
		m.passivateAll(m.tracked.Tick(m.now))
		for len(m.resting) > 0 && (m.resting[0].state != resting || m.now >= m.resting[0].restartAt) {
			e := m.resting[0]
			m.resting = m.resting[1:]
			if e.state == resting && m.now >= e.restartAt {
				m.enqueueStart(e)
			}
		}
		m.retryPassivation()
	}
	return m.takeEffects()
}

// Next returns the time of the next call of Tick, passivation.Never if there is none. Each step may
// change it.
func (m *Machine) Next() time.Duration {
	next := m.nextIndex()
	if m.updates.id != 0 {
		next = m.updates.due
	}
	switch {
	case m.phase == handingOff, m.phase == loading && m.handOffPending:
		next = min(next, m.deadline)
	case m.phase == leasing:
		next = min(next, m.acquireAt)
	case m.phase == open:
		next = min(next, m.tracked.Next())
		if len(m.resting) > 0 {
			next = min(next, m.resting[0].restartAt)
		}
		if len(m.busyIdle) > 0 {
			next = min(next, m.busyIdle[0].restartAt)
		}
	}
	return next
}

// Running returns the IDs of the running entities, sorted.
func (m *Machine) Running() []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.entities)) {
		if m.entities[id].runs() {
			ids = append(ids, id)
		}
	}
	return ids
}

// Starts reports whether an entity does not run, and starts without another message: it is remembered,
// waits for its start or for the end of a back-off, or its start is being stored.
func (m *Machine) Starts(id string) bool {
	e := m.entities[id]
	return e != nil && !e.runs() && (e.state != forgetting || len(e.buffer) > 0)
}

// Len returns the number of running entities and of those that are about to start.
func (m *Machine) Len() int { return len(m.entities) }

// Recovering returns an upper bound of the number of entities that were remembered or are in the
// index, and have not been started.
func (m *Machine) Recovering() int { return len(m.unrecovered) }

func (m *Machine) takeEffects() Effects {
	m.fillSlots()
	m.store()
	m.callIndex()
	// A late update of the index must not follow the load of the next owner.
	if (m.phase == handingOff && m.index.call == 0 || m.phase == killing) && len(m.entities) == 0 {
		if m.phase, m.out.Done = ended, m.reason; m.cfg.Lease {
			m.phase, m.out.Done, m.out.Release = releasing, 0, true
		}
	}
	out := m.out
	m.out = Effects{}
	return out
}
