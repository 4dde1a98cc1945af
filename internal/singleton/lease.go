// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import "time"

// leaseState is what a manager knows of its lease.
type leaseState struct {
	asked   int // requests that are not answered
	held    bool
	retryAt time.Duration
}

func (m *Manager) acquire(out *Effects) {
	if m.state != AcquiringLease {
		m.become(AcquiringLease, out)
	}
	m.lease.asked++
	out.AskLease = true
}

func (m *Manager) leaseAnswered(now time.Duration, held bool, out *Effects) {
	l := &m.lease
	if l.asked == 0 {
		return
	}
	l.asked--
	if l.asked > 0 || m.state != AcquiringLease {
		return // it has been released since
	}
	l.held = held
	switch {
	case !held:
		l.retryAt = now + m.cfg.LeaseRetryInterval
	case m.instance == 0:
		m.become(Oldest, out)
		m.start(out)
	}
}

// leaseLost ends the instance. The oldest asks for the lease again then, unless it has
// nothing to run.
func (m *Manager) leaseLost(out *Effects) {
	if !m.lease.held {
		return
	}
	m.lease.held = false
	m.stop(out)
	if m.state != Oldest {
		return
	}
	if m.instance == 0 || m.suspended {
		m.goOn(out)
		return
	}
	m.again = false
	m.become(AcquiringLease, out)
}

// dropLease releases the lease if it is held or asked for, and reports whether. That is done
// only when no instance runs.
func (m *Manager) dropLease(out *Effects) bool {
	if !m.lease.held && m.lease.asked == 0 {
		return false
	}
	m.lease.held = false
	out.ReleaseLease = true
	return true
}

// leaveAcquiring gives up to ask for the lease.
func (m *Manager) leaveAcquiring(out *Effects) {
	if m.state == AcquiringLease {
		m.dropLease(out)
	}
}
