// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import "github.com/refold-io/refold/identity"

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
