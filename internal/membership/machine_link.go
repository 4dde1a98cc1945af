// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// link is what a node knows of its own connection to the others: it sends
// heartbeats to itself, the way that all messages go.
type link struct {
	state     linkState
	nr        uint64        // of the last one
	floor     uint64        // the first one that counts
	heard     time.Duration // when the last one came back
	suspended bool
	// gone: it was silent for so long that others may have given this node up, and nobody has vouched for it since.
	gone bool
	// well: when the silence began nobody was missing, as far as this node knew, and it was not in doubt about itself.
	well bool
}

type linkState uint8

const (
	linkUnknown linkState = iota // nothing was heard yet
	linkUp
	linkDown
)

// echo sends a heartbeat to this node itself.
func (m *Machine) echo() {
	if m.timers[timerLink] == Never && m.link.state == linkUnknown && m.link.nr == 0 {
		m.link.heard = m.now
		m.again(timerLink, m.s.AcceptablePause)
	}
	m.link.nr++
	m.again(timerEcho, m.s.HeartbeatInterval)
	m.send(m.self, Echo{m.link.nr})
}

// checkLink notices that nothing was heard for too long.
func (m *Machine) checkLink() {
	silent := m.now - m.link.heard
	if silent >= m.s.AcceptablePause && m.link.state != linkDown {
		m.count.TimedOut[TimeoutEcho]++
		m.disconnect("this node does not hear itself", Attr{"for", silent})
	}
	if silent >= m.s.SuspendAfter {
		m.isGone()
	}
	if silent >= m.s.SuspendAfter && !m.link.suspended && m.phase == member {
		m.count.TimedOut[TimeoutSuspend]++
		m.suspend("this node is disconnected for too long: it stops hosting", silent)
	}
	switch {
	case m.link.state != linkDown:
		m.timers[timerLink] = m.link.heard + m.s.AcceptablePause
	case !m.link.suspended && m.phase == member:
		m.timers[timerLink] = max(m.now+time.Millisecond, m.link.heard+m.s.SuspendAfter)
	case m.phase != member:
		m.again(timerLink, m.s.AcceptablePause)
	default:
		m.timers[timerLink] = Never
	}
}

// suspend stops this node from hosting anything.
func (m *Machine) suspend(why string, d time.Duration) {
	m.link.suspended = true
	m.log(Error, why, Attr{"for", d})
	m.live(Suspended)
}

// disconnect stops judging others until this node hears itself again. What was
// sent before does not count.
func (m *Machine) disconnect(why string, attrs ...Attr) {
	if m.link.state == linkDown {
		return
	}
	m.log(Warn, "this node is disconnected", append([]Attr{{"because", why}}, attrs...)...)
	m.link.state = linkDown
	m.link.floor = m.link.nr + 1
	m.link.well = m.undecided.since == Never && !m.link.suspended
	m.doubts.open = false
	m.timers[timerGiveUp] = Never
	m.live(Disconnected)
	m.soon(timerLink, max(m.now, m.link.heard+m.s.SuspendAfter))
	m.weigh()
}

// echoed hears this node's own heartbeat.
func (m *Machine) echoed(from identity.Node, msg Echo) {
	if from != m.self || msg.Nr < m.link.floor || msg.Nr > m.link.nr {
		m.drop(DropUnexpected)
		return
	}
	if m.link.state == linkDown {
		m.checkLink()
	}
	m.link.heard = m.now
	if m.link.state != linkUp {
		m.connect()
	}
	m.timers[timerLink] = m.now + m.s.AcceptablePause
}

// connect begins to judge others, from nothing.
func (m *Machine) connect() {
	was := m.link.state
	m.link.state = linkUp
	if was == linkDown {
		m.log(Info, "this node is connected again")
		m.live(Connected)
	}
	if m.phase != member {
		if m.join.wanted {
			m.beginJoin()
		}
		return
	}
	for i := range m.names { // silence said nothing
		m.names[i].since = m.now
	}
	m.watch.floor = m.watch.nr + 1
	m.watch.monitors = nil
	m.remonitor()
	m.leading.attempts = 0
	m.reconnected()
	m.isBack()
	if m.link.suspended {
		m.doubt()
	}
}
