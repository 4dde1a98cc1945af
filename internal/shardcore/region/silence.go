// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// patience is after how many RetryIntervals without a word a region doubts that the coordinator is there, which may be waiting itself
// before it says where a shard is.
const patience = 3

// Silence returns how long no coordinator has said anything, since one was asked. It is 0 if none is to answer.
func (m *Machine) Silence() time.Duration {
	if m.stopped || m.askedAt == coordinator.Never {
		return 0
	}
	return m.now - m.askedAt
}

// asked notes that a coordinator is to answer. Of a node that is no member yet nobody can know.
func (m *Machine) asked() {
	if m.askedAt == coordinator.Never && m.member(m.cfg.Self) {
		m.askedAt = m.now
	}
}

// heard notes that one has said something.
func (m *Machine) heard() { m.askedAt, m.doubts = coordinator.Never, false }

// seeks reports whether the region says that it is there until a coordinator answers.
func (m *Machine) seeks() bool { return !m.stopped && (!m.registered || m.doubts) }

// goes reports whether the region is going to stop, when it has given away what it has.
func (m *Machine) goes() bool { return m.leaving && !m.stays }

// doubt asks whether the coordinator is still there. One that is there answers a registration at once, whatever else it waits for. A region that
// is going to stop asks as soon as something waits for a home.
func (m *Machine) doubt() {
	switch {
	case m.stopped:
	case m.seeks():
		if m.goes() {
			m.askedAt = min(m.askedAt, m.now)
		}
	case m.goes() && m.cfg.GiveUpAfter > 0 && m.homeless() || m.Silence() >= patience*m.cfg.RetryInterval:
		m.doubts = true
		m.seek()
	}
}

// homeless reports whether anything waits for a shard whose home is not known.
func (m *Machine) homeless() bool {
	for s := range m.buffers { // the order does not matter
		if _, known := m.Home(s); !known {
			return true
		}
	}
	return false
}

// giveUpAt returns when a region that is going to stop waits for homes no longer, unless a coordinator answers before.
func (m *Machine) giveUpAt() time.Duration {
	switch {
	case m.cfg.GiveUpAfter == 0 || m.stopped || !m.goes() || m.buffered == 0 || !m.seeks():
		return coordinator.Never
	case m.refusal != nil: // it hears of no home
		return m.now
	case m.askedAt == coordinator.Never: // one has just said something
		return coordinator.Never
	}
	return max(m.askedAt, m.soughtAt) + m.cfg.GiveUpAfter
}

// giveUp refuses what waits for homes if it is time.
func (m *Machine) giveUp() {
	if m.now < m.giveUpAt() {
		return
	}
	for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
		if _, known := m.Home(s); known {
			continue
		}
		for _, line := range m.buffers[s].lines() {
			m.refuseAll(s, line, RegionStopped, all)
		}
		m.tidy(s)
	}
}
