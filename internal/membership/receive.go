// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

func (m *Machine) drop(why Drop) { m.count.Dropped[why]++ }

func (m *Machine) receive(in Received) {
	if in.To.Name != m.self.Name || in.To.UID != m.self.UID && in.To.UID != 0 {
		m.drop(DropOther)
		return
	}
	msg, err := DecodeMessage(in.Data)
	if err != nil {
		m.drop(DropMalformed)
		m.log(Debug, "cannot decode a message", Attr{"from", in.From}, Attr{"error", err})
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
		return // a message to its own name is delivered to the sender as well
	case in.From == m.self && kind != KindEcho:
		m.drop(DropUnexpected)
		return
	}
	m.count.Received[kind]++
	m.dispatch(in, msg)
}

// dispatch passes a message to its handler. Some messages are handled by members only. Gossip is
// also handled only if its sender is a member.
func (m *Machine) dispatch(in Received, msg Message) {
	switch kind := msg.kind(); kind {
	case KindDigests, KindVersions, KindSeen, KindState, KindLivenessQuery, KindLivenessReply,
		KindJoin, KindHeartbeat, KindHeartbeatReply, KindExitingConfirmed, KindStranger:
		if m.phase != member {
			m.drop(DropEarly)
			return
		}
		isGossip := kind >= KindDigests && kind <= KindState || kind == KindLivenessQuery || kind == KindLivenessReply
		if isGossip {
			if !m.listensTo(in.From) {
				return
			}
			m.known = m.now
		}
	default:
	}
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
	case Join:
		m.joinAsked(in.From, msg)
	case Heartbeat:
		m.send(in.From, HeartbeatReply(msg))
	case HeartbeatReply:
		m.heartbeatReply(in.From, msg)
	case ExitingConfirmed:
		m.exitingConfirmed(in.From)
	case Stranger:
		m.stranger(in.From)
	case Digests:
		m.digests(in.From, msg)
	case Versions:
		m.versions(in.From, msg)
	case Seen:
		m.seen(in.From, msg)
	case State:
		m.state(in, msg)
	case LivenessQuery:
		m.livenessQuery(in.From, msg)
	case LivenessReply:
		m.livenessReply(in.From, msg)
	}
}

// listensTo reports whether gossip from a node is accepted: from members that this node itself does
// not find unreachable. Observations of other members do not count, because with them a repaired
// link could stay unused.
func (m *Machine) listensTo(from identity.Node) bool {
	switch {
	case m.gossip.Removed(from):
		m.drop(DropRemoved)
		m.send(from, Quarantined{}) // possibly no other node informs the sender
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

type excluded struct {
	since  time.Duration
	notice time.Duration // when the node may be notified again
}

type removedNode struct {
	node identity.Node
	due  time.Duration
}

const noticeInterval = time.Second

// exclude quarantines a node. A member must still be marked as down before it is removed.
func (m *Machine) exclude(n identity.Node) {
	if n == m.self {
		return
	}
	if _, known := m.quarantine[n]; !known {
		m.log(Info, "node is quarantined", Attr{"member", n})
		m.quarantine[n] = &excluded{since: m.now}
		m.quarantineOrder = append(m.quarantineOrder, n)
		m.out.Quarantine = append(m.out.Quarantine, n)
	}
	if m.gossip.Member(n) != nil {
		m.change(Change{Observed: []Observation{{n, Terminated}}})
	}
}

// refuse reports whether a sender is quarantined, and notifies it. A node that has left is notified
// as well: if it still sends messages, it was removed before it noticed its removal.
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

// quarantined handles two reports: a member has quarantined this node, or a later incarnation of a
// member reports that this node was removed. This node ends; the sender does not. A single member
// cannot end this node by a forged report: the report of a second member must confirm it. A removed
// node receives such reports from all members. The first report is sufficient if this node reaches
// no other member, or if it was disconnected or is suspended.
func (m *Machine) quarantined(from identity.Node) {
	asked := m.phase == askingSeeds && slices.Contains(m.join.seeds, from.Name) || m.phase == joining && m.join.name == from.Name
	if asked {
		// This incarnation was accepted, and removed before its welcome arrived. Another
		// incarnation may join.
		m.log(Error, "join: node was removed before its welcome arrived", Attr{"by", from})
		m.stop(WasDowned)
		return
	}
	if len(m.gossip.Named(from.Name)) == 0 || m.gossip.Removed(from) {
		m.drop(DropStranger)
		return
	}
	if len(m.gossip.Named(m.accuser)) == 0 {
		m.accuser = from.Name
	}
	if m.accuser == from.Name && m.absence() == Present && m.reachesOther(from.Name) {
		m.drop(DropUnconfirmed)
		return
	}
	if me := m.me(); me.Status.CanBecome(identity.Down) {
		m.log(Error, "node was quarantined by another member", Attr{"by", from})
		m.change(Change{Put: []*identity.Member{withStatus(me, identity.Down)}})
	}
}

// reachesOther reports whether this node finds a member reachable that has another name.
func (m *Machine) reachesOther(name string) bool {
	return slices.ContainsFunc(m.gossip.Members(), func(o *identity.Member) bool {
		return o.Node != m.self && o.Node.Name != name && !isGone(o.Status) && m.gossip.Reachability().By(m.self, o.Node) == Reachable
	})
}

func (m *Machine) quarantineRemoved() {
	open := m.removed[:0]
	for _, g := range m.removed {
		if g.due > m.now {
			open = append(open, g)
			m.soon(timerGrave, g.due)
			continue
		}
		m.exclude(g.node)
	}
	m.removed = open
}

func (m *Machine) expire() {
	for len(m.quarantineOrder) > 0 {
		n := m.quarantineOrder[0]
		if e := m.quarantine[n]; m.now-e.since < m.s.PruneTombstonesAfter || m.gossip.Member(n) != nil {
			return
		}
		delete(m.quarantine, n)
		m.quarantineOrder = m.quarantineOrder[1:]
	}
}

// Gone reports whether a node can never be a member again: it was removed or is quarantined.
func (m *Machine) Gone(n identity.Node) bool {
	_, known := m.quarantine[n]
	return known || m.gossip.Removed(n)
}
