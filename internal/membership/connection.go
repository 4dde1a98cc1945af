// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// Connectivity is the evidence that a node has of its own membership. The resolver uses it.
type Connectivity uint8

// The values of Connectivity.
const (
	// Confirmed: the node was never disconnected for long, or its membership has been confirmed
	// since, or a reachable member was not disconnected. The node may decide.
	Confirmed Connectivity = iota
	// Isolated: the node does not receive its own heartbeats. The node must not decide.
	Isolated
	// Unconfirmed: the node and all reachable members were disconnected for long. The unreachable
	// members may have downed them one by one and continue as a smaller and smaller group, so the
	// sizes of the two sides in this node's view are not evidence. The node must not decide.
	Unconfirmed
	// LostTogether: the node and all reachable members were disconnected for long, but they lost
	// their connections when no member was missing, hence at about the same time. If the
	// unreachable members have decided, they decided about all of these nodes together. The node
	// may decide with a strategy by which one of two sides survives, no matter when each side
	// decides.
	LostTogether
)

func (s Connectivity) String() string { return [...]string{"sure", "cut", "doubtful", "together"}[s] }

// Absence is the state of the sender of a LivenessReply: whether the sender was disconnected
// itself.
type Absence uint8

// The numbers are those of the wire format and never change.
const (
	// Present: the sender was not disconnected for long, and may host.
	Present Absence = iota
	// Away: the sender was disconnected for long or still is, so its own membership is not
	// confirmed.
	Away
	// Halted: the sender was not disconnected, but is suspended until there is a downing decision.
	Halted
	// AwayFromWell: the sender was disconnected once, and no member was missing when the
	// disconnection began.
	AwayFromWell
)

func (m *Machine) absence() Absence {
	switch {
	case m.link.state != linkUp:
		return Away
	case m.link.gone && m.link.well:
		return AwayFromWell
	case m.link.gone:
		return Away
	case m.link.suspended:
		return Halted
	}
	return Present
}

// Connectivity returns the evidence of this node's membership. It may change with each step.
func (m *Machine) Connectivity() Connectivity {
	switch {
	case m.link.state == linkDown:
		return Isolated
	case !m.link.gone:
		return Confirmed
	}
	together := m.link.well
	for i, o := range m.gossip.Members() {
		if o.Node == m.self || isGone(o.Status) || m.cache.unreachable.has(i) {
			continue
		}
		at, found := m.doubts.find(o.Node)
		if !found || !m.doubts.by[at].known {
			together = false
			continue
		}
		switch said := m.doubts.by[at].absence; said {
		case Present, Halted:
			if countsForConvergence(o.Status) {
				return Confirmed
			}
			together = false
		case Away, AwayFromWell:
			together = together && said == AwayFromWell
		}
	}
	if together {
		return LostTogether
	}
	return Unconfirmed
}

func (m *Machine) startGiveUpTimer() {
	if m.link.gone && m.s.GiveUpAfter > 0 {
		m.again(timerGiveUp, m.s.GiveUpAfter)
	}
}

// giveUp ends this node if no connected member has confirmed its membership and there is no
// decision about the missing members. Without giveUp the node could wait forever for members that
// never return. A new node can be started instead.
func (m *Machine) giveUp() {
	me := m.me()
	switch {
	case !m.link.gone || me.Status == identity.Down:
	case m.Connectivity() == Confirmed:
		m.startGiveUpTimer()
	default:
		m.count.TimedOut[TimeoutLiveness]++
		m.log(Error, "no member has confirmed the membership of this node after its disconnection, shutting down", Attr{"for", m.s.GiveUpAfter})
		m.down(m.self)
	}
}

// link is the state of this node's connection. The node sends heartbeats to itself over the same
// path as all messages.
type link struct {
	state     linkState
	nr        uint64        // of the last heartbeat
	floor     uint64        // the first heartbeat that counts
	heard     time.Duration // when the last heartbeat was received
	suspended bool
	// gone: the node received no own heartbeats for so long that others may have downed it, and its
	// membership has not been confirmed since.
	gone bool
	// well: when the node was disconnected, no member was missing and its membership was confirmed.
	well bool
}

type linkState uint8

const (
	linkUnknown linkState = iota // no heartbeat was received yet
	linkUp
	linkDown
)

func (m *Machine) echo() {
	if m.timers[timerLink] == Never && m.link.state == linkUnknown && m.link.nr == 0 {
		m.link.heard = m.now
		m.again(timerLink, m.s.AcceptablePause)
	}
	m.link.nr++
	m.again(timerEcho, m.s.HeartbeatInterval)
	m.send(m.self, Echo{m.link.nr})
}

func (m *Machine) checkLink() {
	silent := m.now - m.link.heard
	if silent >= m.s.AcceptablePause && m.link.state != linkDown {
		m.count.TimedOut[TimeoutEcho]++
		m.disconnect("no own heartbeats received", Attr{"for", silent})
	}
	if silent >= m.s.SuspendAfter && m.phase == member {
		m.link.gone = true // other members may have downed this node
		if !m.link.suspended {
			m.count.TimedOut[TimeoutSuspend]++
			m.suspend("node was disconnected for too long, suspending it", silent)
		}
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

func (m *Machine) suspend(why string, d time.Duration) {
	m.link.suspended = true
	m.log(Error, why, Attr{"for", d})
	m.live(Suspended)
}

// disconnect stops the failure detector until this node receives its own heartbeats again. Earlier
// heartbeats do not count.
func (m *Machine) disconnect(why string, attrs ...Attr) {
	if m.link.state == linkDown {
		return
	}
	m.log(Warn, "node is disconnected", append([]Attr{{"reason", why}}, attrs...)...)
	m.link.state = linkDown
	m.link.floor = m.link.nr + 1
	m.link.well = m.undecided.since == Never && !m.link.suspended
	m.doubts.open = false
	m.timers[timerGiveUp] = Never
	m.live(Disconnected)
	m.soon(timerLink, max(m.now, m.link.heard+m.s.SuspendAfter))
	m.updateUndecided()
}

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

func (m *Machine) connect() {
	was := m.link.state
	m.link.state = linkUp
	if was == linkDown {
		m.log(Info, "node is connected again")
		m.live(Connected)
	}
	if m.phase != member {
		if m.join.wanted {
			m.beginJoin()
		}
		return
	}
	for i := range m.names { // the silence is not evidence
		m.names[i].since = m.now
	}
	m.watch.floor = m.watch.nr + 1
	m.watch.monitors = nil
	m.remonitor()
	m.attempts = 0
	// A partition that began during the disconnection needs time to become visible: twice the time
	// to find a member unreachable and to propagate the observation.
	m.undecided.shown = m.now + 2*(m.s.ExpectedResponseAfter+m.s.HeartbeatInterval+m.s.AcceptablePause+m.s.ReaperInterval+m.s.GossipInterval)
	m.updateUndecided()
	m.startGiveUpTimer()
	if m.link.suspended {
		m.doubts = livenessCheck{open: true, nr: m.doubts.nr + 1}
		m.probe()
	}
}
