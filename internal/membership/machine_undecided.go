// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "time"

// undecided is for how long it may have been open who goes on and who is given up. Others who can't
// reach this node give it up by a time of theirs, which this node can't see, and which does not begin anew
// when its own does: after a pause, a lost link, or because somebody else is missing
// too. So it counts from when all members agreed last that all of them can be reached, and nothing
// but that agreement, or a decision about everybody who can't be reached, lets it begin anew.
type undecided struct {
	// since is when not all could be reached first, or when this node heard itself last before it was disconnected. Never, if
	// all agree that all is well.
	since time.Duration
	// shown is when a cut that began while this node was disconnected has surely shown itself: what others
	// have seen before tells nothing.
	shown time.Duration
	open  bool
}

// weigh looks whether it is open who goes on. It is called when the members, who reaches them or who
// has seen that have changed, and this node's own link.
func (m *Machine) weigh() {
	u := &m.undecided
	if m.phase != member {
		return
	}
	was, cut := u.open, m.link.state == linkDown
	u.open = cut || m.cache.open
	switch {
	case cut:
		u.since = min(u.since, m.link.heard)
	case u.open:
		u.since = min(u.since, m.now)
	case u.since != Never && m.now >= u.shown && m.allHaveSeen():
		u.since = Never
	}
	switch {
	case u.since == Never, m.link.suspended, m.s.UndecidedAfter == 0:
		m.timers[timerUndecided] = Never
	case u.open:
		m.timers[timerUndecided] = u.since + m.undecidedAfter()
	case m.now < u.shown:
		m.timers[timerUndecided] = u.shown
	default:
		m.timers[timerUndecided] = Never
	}
	if was && !u.open && m.link.suspended && m.s.UndecidedAfter > 0 {
		// It may have been decided against this node, and it may be in the middle of a decision that downs it
		// last: it begins to ask in the next round.
		m.doubts = doubts{open: true, nr: m.doubts.nr + 1}
	}
}

// checkUndecided suspends this node if it has been open for too long who goes on.
func (m *Machine) checkUndecided() {
	if m.phase == member && !m.link.suspended && m.overdue() {
		m.count.TimedOut[TimeoutUndecided]++
		m.suspend("nobody has decided in time about members that can't be reached: this node stops hosting", m.now-m.undecided.since)
	}
	m.weigh()
}

// overdue reports whether others may have decided by now, and start what this node hosts.
func (m *Machine) overdue() bool {
	u := &m.undecided
	return m.s.UndecidedAfter > 0 && u.open && u.since != Never && m.now-u.since >= m.undecidedAfter()
}

// undecidedAfter is for how long it may be open who goes on. Whoever leaves is Exiting as soon as all have seen that, and then
// others wait for nothing but the margin.
func (m *Machine) undecidedAfter() time.Duration {
	if me := m.me(); me != nil && (me.Status == Leaving || me.Status == Exiting) {
		return m.s.LeavingUndecidedAfter
	}
	return m.s.UndecidedAfter
}

// reconnected gives a cut that this node could not see time to show itself: twice as long as it takes to
// find a member unreachable and to say so.
func (m *Machine) reconnected() {
	m.undecided.shown = m.now + 2*(m.s.ExpectedResponseAfter+m.s.HeartbeatInterval+m.s.AcceptablePause+m.s.ReaperInterval+m.s.GossipInterval)
	m.weigh()
}

// findOpen finds out whether somebody can't be reached, this node included, who is neither Down
// nor Exiting.
func (m *Machine) findOpen() {
	m.cache.open = false
	m.cache.unreachable.each(func(i int) {
		m.cache.open = m.cache.open || !isGone(m.gossip.members[i].Status)
	})
}

// allHaveSeen reports whether all who may live have seen what this node knows.
func (m *Machine) allHaveSeen() bool {
	for i, o := range m.gossip.Members() {
		if !isGone(o.Status) && !m.gossip.seen.has(i) {
			return false
		}
	}
	return true
}
