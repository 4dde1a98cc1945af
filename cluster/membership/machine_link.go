// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
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
	once      bool          // one came back
	suspended bool
	// doubted are members that have not yet shown, after a suspension, that they
	// still take this node for a member. Sorted.
	doubted []identity.Node
	proving bool
}

type linkState uint8

const (
	linkUnknown linkState = iota // nothing was heard yet
	linkUp
	linkDown
)

// maxProbes bounds how many members are asked at a time.
const maxProbes = 128

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
	if silent >= m.s.SuspendAfter && !m.link.suspended && m.phase == member {
		m.count.TimedOut[TimeoutSuspend]++
		m.link.suspended = true
		m.log(Error, "this node is disconnected for too long: it stops hosting", Attr{"for", silent})
		m.live(Suspended)
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

// disconnect stops judging others until this node hears itself again. What was
// sent before does not count.
func (m *Machine) disconnect(why string, attrs ...Attr) {
	if m.link.state == linkDown {
		return
	}
	m.log(Warn, "this node is disconnected", append([]Attr{{"because", why}}, attrs...)...)
	m.link.state = linkDown
	m.link.floor = m.link.nr + 1
	m.link.proving, m.link.doubted = false, nil
	m.live(Disconnected)
	m.soon(timerLink, max(m.now, m.link.heard+m.s.SuspendAfter))
}

// echoed hears this node's own heartbeat.
func (m *Machine) echoed(from identity.Node, msg Echo) {
	if from != m.self || msg.Nr < m.link.floor || msg.Nr > m.link.nr {
		m.drop(DropUnexpected)
		return
	}
	m.link.heard = m.now
	if m.link.state != linkUp {
		m.connect()
	}
	m.timers[timerLink] = m.now + m.s.AcceptablePause
}

// connect begins to judge others, from nothing.
func (m *Machine) connect() {
	was, once := m.link.state, m.link.once
	m.link.state, m.link.once = linkUp, true
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
	if !once { // it has founded a cluster before it heard itself
		m.claim()
	}
	for i := range m.names { // silence said nothing
		m.names[i].since = m.now
	}
	m.watch.floor = m.watch.nr + 1
	m.watch.monitors = nil
	m.remonitor()
	m.leading.attempts = 0
	if m.link.suspended {
		m.doubt()
	}
}

// doubt asks all members whether this node is still one: it may have been given
// up meanwhile, and others host what it did.
func (m *Machine) doubt() {
	m.link.proving, m.link.doubted = true, nil
	for _, o := range m.gossip.Members() {
		if o.Node != m.self && !o.Status.dead() {
			m.link.doubted = append(m.link.doubted, o.Node)
		}
	}
	m.probe()
}

// probe asks those that have not answered, and lets this node go on when all
// have that can.
func (m *Machine) probe() {
	if !m.link.proving {
		return
	}
	m.link.doubted = slices.DeleteFunc(m.link.doubted, func(n identity.Node) bool {
		i, found := findMember(m.gossip.Members(), n)
		return !found || m.gossip.members[i].Status.dead() || m.cache.unreachable.has(i)
	})
	if len(m.link.doubted) == 0 {
		m.resume()
		return
	}
	msg := AppendMessage(nil, Digests{})
	for _, n := range m.link.doubted[:min(maxProbes, len(m.link.doubted))] {
		m.sendData(n, KindDigests, msg)
	}
}

// proved notes that a member takes this node for one.
func (m *Machine) proved(by identity.Node) {
	if !m.link.proving {
		return
	}
	if i, found := slices.BinarySearchFunc(m.link.doubted, by, identity.Node.Compare); found {
		m.link.doubted = slices.Delete(m.link.doubted, i, i+1)
	}
	if len(m.link.doubted) == 0 {
		m.resume()
	}
}

func (m *Machine) resume() {
	m.link.proving, m.link.doubted = false, nil
	if me := m.me(); me == nil || me.Status == Down {
		return // it is going to stop
	}
	m.link.suspended = false
	m.log(Info, "this node is still a member: it may host again")
	m.live(Resumed)
}
