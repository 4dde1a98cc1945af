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
