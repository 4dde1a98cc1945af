// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// watch is whom a node monitors.
type watch struct {
	monitors []*monitor // sorted by node
	nr       uint64     // of the last heartbeat
	floor    uint64     // the first one whose answer counts
	last     time.Duration
}

// monitor is a monitored member.
type monitor struct {
	node     identity.Node
	detector *Detector
	expect   time.Duration // when the first answer is due
	heard    bool          // it has answered
	former   bool          // it is others' turn, but it does not answer
}

func (w *watch) find(n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(w.monitors, n, func(o *monitor, n identity.Node) int { return o.node.Compare(n) })
}

// remonitor finds out whom to monitor. Who is not to be monitored any more and
// does not answer stays until it does or is removed.
func (m *Machine) remonitor() {
	wanted := monitored(m.gossip.Members(), m.cache.unreachable, m.self, m.breadth())
	next := make([]*monitor, 0, len(wanted))
	for _, n := range wanted {
		if i, found := m.watch.find(n); found {
			m.watch.monitors[i].former = false
			next = append(next, m.watch.monitors[i])
		} else {
			next = append(next, &monitor{node: n, detector: NewDetector(&m.phi), expect: Never})
		}
	}
	for _, o := range m.watch.monitors {
		if _, found := slices.BinarySearchFunc(wanted, o.node, identity.Node.Compare); found || m.gossip.Member(o.node) == nil || o.detector.Available(m.now) {
			continue
		}
		o.former = true
		next = append(next, o)
	}
	slices.SortFunc(next, func(a, b *monitor) int { return a.node.Compare(b.node) })
	m.watch.monitors = next
}

// breadth is how many members this node monitors. Who finds as many unreachable as it
// commonly monitors is on the small side of a cut, and monitors all: to find out about the
// others a few at a time would take longer than downing waits for rest, so that this side
// went down even if it is the one to stay.
func (m *Machine) breadth() int {
	silent := 0
	m.gossip.Reachability().of(m.self, func(rec Record) {
		if rec.Reach == Unreachable {
			silent++
		}
	})
	if silent >= m.s.MonitoredBy {
		return len(m.gossip.Members())
	}
	return m.s.MonitoredBy
}

// heartbeat asks all monitored members whether they are there.
func (m *Machine) heartbeat() {
	interval := m.s.HeartbeatInterval
	if m.watch.last > 0 && m.now-m.watch.last >= 2*interval {
		m.log(Warn, "heartbeats are late: this node has too little processor time", Attr{"late", m.now - m.watch.last - interval})
	}
	m.watch.last = m.now
	m.again(timerHeartbeat, interval)
	if m.lone {
		m.claim()
	}
	m.watch.nr++
	data := AppendMessage(nil, Heartbeat{m.watch.nr, m.now})
	for _, o := range m.watch.monitors {
		if !o.detector.Monitored() && o.expect == Never {
			o.expect = m.now + m.s.ExpectedResponseAfter
			m.soon(timerExpect, o.expect)
		}
		m.sendData(o.node, KindHeartbeat, data)
	}
}

// expect begins to suspect who has never answered.
func (m *Machine) expect() {
	for _, o := range m.watch.monitors {
		switch {
		case o.detector.Monitored():
		case o.expect > m.now:
			m.soon(timerExpect, o.expect)
		case m.link.state == linkUp:
			m.count.TimedOut[TimeoutFirstResponse]++
			o.detector.Beat(m.now)
		default:
			o.expect = Never // the next heartbeat begins anew
		}
	}
}

// heartbeatReply is the answer of a monitored member.
func (m *Machine) heartbeatReply(from identity.Node, msg HeartbeatReply) {
	i, found := m.watch.find(from)
	if !found || m.link.state != linkUp || msg.Nr < m.watch.floor || msg.Nr > m.watch.nr {
		m.drop(DropUnexpected)
		return
	}
	o := m.watch.monitors[i]
	if gap := o.detector.Gap(m.now); gap >= m.s.AcceptablePause*2/3 && o.detector.Available(m.now) {
		m.log(Warn, "heartbeats are slow", Attr{"member", from}, Attr{"gap", gap})
	}
	o.detector.Beat(m.now)
	o.heard = true
	if o.former {
		m.watch.monitors = slices.Delete(slices.Clone(m.watch.monitors), i, i+1)
	}
}

// reap notes who became unreachable and who is reachable again.
func (m *Machine) reap() {
	if m.link.state != linkUp || len(m.gossip.Members()) < 2 {
		return
	}
	var changed []Observation
	reach := m.gossip.Reachability()
	for _, o := range m.watch.monitors {
		if reach.By(m.self, o.node) == Reachable && !o.detector.Available(m.now) {
			m.count.TimedOut[TimeoutHeartbeat]++
			m.log(Warn, "a member is unreachable", Attr{"member", o.node}, Attr{"phi", o.detector.Phi(m.now)})
			changed = append(changed, Observation{o.node, Unreachable})
		}
	}
	reach.of(m.self, func(rec Record) {
		if rec.Reach != Unreachable {
			return
		}
		if i, found := m.watch.find(rec.Subject); found {
			if o := m.watch.monitors[i]; !o.heard || !o.detector.Available(m.now) {
				return
			}
		}
		m.log(Info, "a member is reachable again", Attr{"member", rec.Subject})
		changed = append(changed, Observation{rec.Subject, Reachable})
	})
	if len(changed) > 0 {
		m.change(Change{Observed: changed})
	}
	m.knock()
}

// knock asks one of those that this node finds unreachable whether it lives. No
// gossip goes there, and a heartbeat has no answer but its own: who has quarantined
// this node meanwhile would never say so.
func (m *Machine) knock() {
	var silent []identity.Node
	m.gossip.Reachability().of(m.self, func(rec Record) {
		if rec.Reach == Unreachable {
			silent = append(silent, rec.Subject)
		}
	})
	if len(silent) > 0 {
		n := silent[m.rand.IntN(len(silent))]
		m.send(identity.Node{Name: n.Name}, Ping{n})
	}
}
