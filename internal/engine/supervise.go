// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

func (m *Machine) supervise(cause error) Directive {
	if m.cfg.Supervise == nil {
		return Restart
	}
	return m.cfg.Supervise(cause)
}

// fail ends the instance when its events are durable, unless the supervisor resumes it. intact reports
// whether the state is that of the events.
func (m *Machine) fail(cause error, intact bool, out *Effects) {
	if m.failing {
		return // there is no instance
	}
	verdict := m.supervise(cause)
	if verdict == Resume && intact {
		out.Cause, out.Resumed = cause, true
		return
	}
	m.broken, m.verdict = cause, verdict
}

// ended stops an instance if its supervisor has decided so. Messages that wait fail.
func (m *Machine) ended(verdict Directive, out *Effects) bool {
	if verdict < Stop {
		return false
	}
	out.Verdict = verdict
	m.stopped(out)
	return true
}

// handleFailure lets the Behavior handle the signal about a failed recovery on an empty state. It reports
// whether the Behavior stops the entity. The Behavior persists nothing.
func (m *Machine) handleFailure(signal *Envelope, out *Effects) (stops bool) {
	if signal == nil {
		return false
	}
	stopping := m.stopping
	m.failing, m.stopping = true, false
	defer func() { // also if user code calls runtime.Goexit
		stops, m.failing, m.stopping = m.stopping, false, stopping
		m.dropPending()
	}()
	m.decide(signal, out)
	m.advance(out)
	return stops
}
