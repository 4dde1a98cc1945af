// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "slices"

// parting is the end of an instance that handles a farewell before it stops.
type parting struct {
	farewell *Envelope // nil after it was decided
	saves    []*State  // snapshots that the end of the instance waits for
}

// idle stops the entity if it has no work. An instance with a farewell stops after it has handled the
// farewell; messages that arrive in the meantime go to the next instance.
func (m *Machine) idle(farewell *Envelope, out *Effects) {
	switch {
	case m.parting != nil || !m.Resting():
	case farewell == nil:
		m.stopped(out)
	default:
		m.stopping = true
		m.part(farewell)
	}
}

// part records the farewell of the instance, unless the instance has one already.
func (m *Machine) part(farewell *Envelope) {
	if farewell != nil && m.parting == nil {
		m.parting = &parting{farewell: farewell}
	}
}

// sayFarewell decides the farewell when nothing else is left to do.
func (m *Machine) sayFarewell(out *Effects) bool {
	p := m.parting
	if p == nil || p.farewell == nil || m.phase != ready || m.head != nil || m.outstanding > 0 || m.stash.n > 0 || m.broken != nil {
		return false
	}
	farewell := p.farewell
	p.farewell = nil
	m.decide(farewell, out)
	return true
}

// parted reports whether the instance may stop: it has handled its farewell, and the snapshots that
// were requested since then are saved.
func (m *Machine) parted() bool {
	return m.parting == nil || m.parting.farewell == nil && len(m.parting.saves) == 0 && !m.saving
}

// ends reports whether an instance that was lost stays away, unless messages wait.
func (m *Machine) ends() bool { return m.draining || m.parting != nil && m.parting.farewell == nil }

// awaitSave lets the end of a parting instance wait for a snapshot.
func (m *Machine) awaitSave(s *State) {
	if p := m.parting; p != nil && p.farewell == nil {
		s.Awaited = true
		p.saves = append(p.saves, s)
	}
}

// saved ends the wait for a snapshot.
func (m *Machine) saved(s *State) {
	if s.Request == nil {
		m.saving = false
	}
	if p := m.parting; p != nil {
		p.saves = slices.DeleteFunc(p.saves, func(o *State) bool { return o == s })
	}
}

// Parting reports whether the instance stops after its farewell.
func (m *Machine) Parting() bool { return m.parting != nil }
