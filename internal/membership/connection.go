// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// Standing is what a node knows of its own place in the cluster, for those who decide who goes on.
type Standing uint8

// Where a node stands.
const (
	// Sure: it was never away for long, or others have vouched for it since, or one of those it can reach was
	// not away. It may decide.
	Sure Standing = iota
	// Cut: it does not hear itself. It must decide nothing.
	Cut
	// Doubtful: it was away for long, and so were all that it can reach. Those it can't reach may have given
	// them up one by one, and go on as ever fewer: which side is the larger one by this node's
	// view tells nothing. It must decide nothing.
	Doubtful
	// Together: it was away for long, and so were all that it can reach, but they all lost their links while all was
	// well, and so at about the same time. Those it can't reach have decided about all of them at once, if at all: it may
	// decide by a strategy that lets one of two sides go on, whenever they decide.
	Together
)

func (s Standing) String() string { return [...]string{"sure", "cut", "doubtful", "together"}[s] }

// Absence says in a Vouch whether who vouches was away itself.
type Absence uint8

// The numbers are those of the encoding and never change.
const (
	// Present: it was not away for long, and may host.
	Present Absence = iota
	// Away: it was, or it does not hear itself, so it does not know whether it is a member.
	Away
	// Halted: it was not, but hosts nothing as nobody has decided who goes on.
	Halted
	// AwayFromWell: it was away, once, and all was well when that began.
	AwayFromWell
)

// absence returns what this node says of itself.
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

// Standing returns what this node knows of its own place. It may change with each step.
func (m *Machine) Standing() Standing {
	switch {
	case m.link.state == linkDown:
		return Cut
	case !m.link.gone:
		return Sure
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
				return Sure
			}
			together = false
		case Away, AwayFromWell:
			together = together && said == AwayFromWell
		}
	}
	if together {
		return Together
	}
	return Doubtful
}

// isGone notes that this node was silent for so long that others may have given it up.
func (m *Machine) isGone() {
	if m.phase == member {
		m.link.gone = true
	}
}

// isBack lets a node that was away for long wait for the others, but not forever.
func (m *Machine) isBack() {
	if m.link.gone && m.s.GiveUpAfter > 0 {
		m.again(timerGiveUp, m.s.GiveUpAfter)
	}
}

// isSure notes that this node is known to be a member.
func (m *Machine) isSure() {
	m.link.gone = false
	m.timers[timerGiveUp] = Never
}

// giveUp ends a node of which nobody who was not away has said that it is still a member, and nobody has decided about those
// who are missing: another one can be started in its place, and it could wait for those who never come back.
func (m *Machine) giveUp() {
	me := m.me()
	switch {
	case !m.link.gone || me.Status == Down:
	case m.Standing() == Sure:
		m.isBack()
	default:
		m.count.TimedOut[TimeoutDoubt]++
		m.log(Error, "nobody knows whether this node, which was away for long, is still a member: it ends", Attr{"for", m.s.GiveUpAfter})
		m.down(m.self)
	}
}

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
