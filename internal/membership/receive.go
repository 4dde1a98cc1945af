// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
)

func (m *Machine) drop(why Drop) { m.count.Dropped[why]++ }

// receive handles a message.
func (m *Machine) receive(in Received) {
	if in.To.Name != m.self.Name || in.To.UID != m.self.UID && in.To.UID != 0 {
		m.drop(DropOther)
		return
	}
	msg, err := DecodeMessage(in.Data)
	if err != nil {
		m.drop(DropMalformed)
		m.log(Debug, "a message can't be read", Attr{"from", in.From}, Attr{"error", err})
		return
	}
	kind := KindOf(msg)
	byName := kind == KindInitJoin || kind == KindJoin || kind == KindPing
	switch {
	case in.From.UID == 0 || byName != (in.To.UID == 0):
		m.drop(DropOther)
		return
	case m.refuse(in.From, kind):
		m.drop(DropQuarantined)
		return
	case in.From == m.self && byName:
		return // what it asks its own name comes to it, too
	case in.From == m.self && kind != KindEcho:
		m.drop(DropUnexpected)
		return
	}
	m.count.Received[kind]++
	m.dispatch(in, msg)
}

func (m *Machine) dispatch(in Received, msg Message) {
	switch msg := msg.(type) {
	case Echo:
		m.echoed(in.From, msg)
	case InitJoin:
		m.initJoin(in.From, msg)
	case InitJoinAck:
		m.initJoinAck(in.From, msg)
	case InitJoinNack:
		m.initJoinNack(in.From)
	case Welcome:
		m.welcome(in.From, msg)
	case NameInUse:
		m.nameInUse(in.From, msg)
	case Ping:
		m.ping(in.From, msg)
	case Pong:
		m.pong(in.From)
	case Quarantined:
		m.quarantined(in.From)
	default:
		if m.phase != member {
			m.drop(DropEarly)
			return
		}
		m.dispatchMember(in, msg)
	}
}

// dispatchMember handles what only a member handles.
func (m *Machine) dispatchMember(in Received, msg Message) {
	switch msg := msg.(type) {
	case Join:
		m.joinAsked(in.From, msg)
	case Heartbeat:
		m.send(in.From, HeartbeatReply(msg))
	case HeartbeatReply:
		m.heartbeatReply(in.From, msg)
	case ExitingConfirmed:
		m.exitingConfirmed(in.From)
	case Stranger:
		m.strange(in.From)
	default:
		if !m.listensTo(in.From) {
			return
		}
		switch msg := msg.(type) {
		case Digests:
			m.digests(in.From, msg)
		case Versions:
			m.versions(in.From, msg)
		case Seen:
			m.seen(in.From, msg)
		case State:
			m.state(in, msg)
		case Doubt:
			m.doubtful(in.From, msg)
		case Vouch:
			m.vouch(in.From, msg)
		}
	}
}

// listensTo reports whether gossip from a node is taken: from members, unless
// this node itself finds them unreachable. What others find does not count, or a
// link that was mended could stay unused.
func (m *Machine) listensTo(from identity.Node) bool {
	switch {
	case m.gossip.Buried(from):
		m.drop(DropRemoved)
		m.send(from, Quarantined{}) // it may know nobody else who could tell it
	case m.gossip.Member(from) == nil:
		m.drop(DropStranger)
		m.send(from, Stranger{})
	case m.gossip.Reachability().By(m.self, from) != Reachable:
		m.drop(DropUnreachable)
	default:
		return true
	}
	return false
}

// excluded is a node that is not talked to any more.
type excluded struct {
	since  time.Duration
	notice time.Duration // when it may be told again
}

// grave is a node that is going to be quarantined.
type grave struct {
	node identity.Node
	due  time.Duration
}

// noticeInterval is the time between two notices to one node.
const noticeInterval = time.Second

// exclude quarantines a node. If it is a member it has to be marked as down all
// the same, to be removed.
func (m *Machine) exclude(n identity.Node) {
	if n == m.self {
		return
	}
	if _, known := m.quarantine[n]; !known {
		m.log(Info, "a node is quarantined", Attr{"member", n})
		m.quarantine[n] = &excluded{since: m.now}
		m.buried = append(m.buried, n)
		m.out.Quarantine = append(m.out.Quarantine, n)
	}
	if m.gossip.Member(n) != nil {
		m.change(Change{Observed: []Observation{{n, Terminated}}})
	}
}

// refuse reports whether a sender is quarantined, and tells it: also one that has
// left, for if it still talks it was removed before it knew.
func (m *Machine) refuse(from identity.Node, kind Kind) bool {
	e, known := m.quarantine[from]
	if !known {
		return false
	}
	quiet := kind == KindHeartbeat || kind == KindHeartbeatReply || kind == KindQuarantined
	if !quiet && m.now >= e.notice {
		e.notice = m.now + noticeInterval
		m.send(from, Quarantined{})
	}
	return true
}

// quarantined says that another member does not talk to this node any more, or
// that a later incarnation of one has heard that this node was removed. It is this one
// that goes, never the other.
func (m *Machine) quarantined(from identity.Node) {
	if m.phase != member && m.asks(from.Name) {
		// It was let in without knowing of it, and removed since. Another incarnation
		// may join.
		m.log(Error, "this node was removed before it knew that it had joined", Attr{"by", from})
		m.stop(WasDowned)
		return
	}
	if len(m.gossip.Named(from.Name)) == 0 || m.gossip.Buried(from) {
		m.drop(DropStranger)
		return
	}
	if me := m.me(); me.Status.CanBecome(Down) {
		m.log(Error, "another member has quarantined this node", Attr{"by", from})
		m.change(Change{Put: []*Member{withStatus(me, Down)}})
	}
}

// bury quarantines nodes that have left, a while after.
func (m *Machine) bury() {
	open := m.graves[:0]
	for _, g := range m.graves {
		if g.due > m.now {
			open = append(open, g)
			m.soon(timerGrave, g.due)
			continue
		}
		m.exclude(g.node)
	}
	m.graves = open
}

// expire forgets nodes that were quarantined long ago.
func (m *Machine) expire() {
	for len(m.buried) > 0 {
		n := m.buried[0]
		if e := m.quarantine[n]; m.now-e.since < m.s.PruneTombstonesAfter || m.gossip.Member(n) != nil {
			return
		}
		delete(m.quarantine, n)
		m.buried = m.buried[1:]
	}
}

// Gone reports whether a node can never be a member again: it was removed, or is
// quarantined.
func (m *Machine) Gone(n identity.Node) bool {
	_, known := m.quarantine[n]
	return known || m.gossip.Buried(n)
}
