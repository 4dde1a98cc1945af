// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

func (m *Manager) handOverToNext(now time.Duration, oldest identity.Node, out *Effects) {
	switch {
	case oldest == m.cfg.Self:
	case !m.exited && slices.ContainsFunc(m.removals, func(d removal) bool { return d.member.Node == oldest }):
		// This node was removed and is the oldest again. One of these facts is outdated. It is
		// safest to run no instance until the node is removed again.
		m.handOver(now, identity.Node{}, 0, out)
	default:
		if m.state == AcquiringLease {
			m.dropLease(out)
		}
		m.newOldest = oldest
		m.retries = 0
		m.become(WasOldest, out)
		m.askNext(now, out)
	}
}

// askNext sends TakeOverFromMe to the new oldest member, which may not have found its predecessor.
func (m *Manager) askNext(now time.Duration, out *Effects) {
	m.retries++
	m.retryAt = now + m.cfg.RetryInterval
	if !m.newOldest.IsZero() {
		m.send(m.newOldest, Message{Kind: TakeOverFromMe}, out)
	}
}

func (m *Manager) retryTakeOver(now time.Duration, out *Effects) {
	exhausted := m.retries > m.cfg.handOverRetries()-3
	switch {
	case m.exited && (m.newOldest.IsZero() || exhausted):
		m.end(out)
	case !exhausted:
		m.askNext(now, out)
	default:
		out.Notes = append(out.Notes, Note{Kind: Stuck, State: m.state, Peer: m.newOldest, Message: TakeOverFromMe})
		m.stuck = true
		m.handOver(now, identity.Node{}, 0, out)
	}
}

func (m *Manager) receive(now time.Duration, from identity.Node, msg Message, out *Effects) {
	// A node that is not a member is not part of the hand-over, but it may have ended its instance
	// while leaving.
	accepted := msg.Singleton == m.cfg.Name && from != m.cfg.Self && (m.find(from) != nil || msg.Kind == HandOverDone && msg.Hosted)
	if msg.Kind == Identify && msg.Singleton == m.cfg.Name {
		m.identify(from, msg.Round, out)
		return
	}
	if accepted {
		switch msg.Kind {
		case HandOverToMe:
			accepted = m.askedToHandOver(now, from, msg.Round, out)
		case HandOverInProgress:
			accepted = m.isAnswer(from, msg)
			if accepted && !m.handOverRuns {
				m.handOverRuns = true
				m.retryAt = now + progressRetries*m.cfg.RetryInterval
			}
		case HandOverDone:
			accepted = m.isAnswer(from, msg) && m.previousIsDone(now, from, msg.Hosted, out)
		case TakeOverFromMe:
			accepted = m.askedToTakeOver(from, out)
		case Identify, Identified, InstanceGone: // between a manager and a proxy
			accepted = false
		}
	}
	if !accepted {
		out.Notes = append(out.Notes, Note{Kind: Ignored, State: m.state, Peer: from, Message: msg.Kind})
	}
}

// isAnswer reports whether a message is the reply that this node waits for: from the peer, and in
// the current round.
func (m *Manager) isAnswer(from identity.Node, msg Message) bool {
	return m.state == BecomingOldest && len(m.previous) > 0 && m.previous[0] == from && msg.Round == m.round
}

func (m *Manager) previousIsDone(now time.Duration, from identity.Node, hosted bool, out *Effects) bool {
	if hosted {
		m.becomeOldest(true, out)
		return true
	}
	// The peer had no instance, so this node asks the peer's predecessors. A peer that is Down may
	// not have noticed that it was the oldest, so this node waits for the removal of that peer.
	if m.find(from).Status == identity.Down {
		return false
	}
	m.previous = m.previous[1:]
	if m.allGone() {
		m.becomeOldest(false, out)
		return true
	}
	m.handOverRuns = false
	m.askPrevious(now, out)
	return true
}

func (m *Manager) askedToTakeOver(from identity.Node, out *Effects) bool {
	switch m.state {
	case Oldest, AcquiringLease: // this node waits for no other node
	case BecomingOldest:
		if len(m.previous) == 0 {
			m.previous = append(m.previous, from)
		}
		if m.previous[0] != from {
			return false
		}
	case Start, Younger, WasOldest, HandingOver, Stopping, End:
		return false
	}
	m.send(from, Message{Kind: HandOverToMe, Round: m.round}, out)
	return true
}

func (m *Manager) askedToHandOver(now time.Duration, from identity.Node, round uint64, out *Effects) bool {
	switch m.state {
	case Younger:
		// This node may be about to become the oldest while it leaves.
		if m.leaving() {
			return false
		}
		m.send(from, Message{Kind: HandOverDone, Round: round}, out)
		return true
	case Oldest, AcquiringLease, WasOldest:
		// A younger node cannot be the oldest while this node stays. Either the request is late, or
		// this node has been removed and has not received its removal yet.
		if m.preparing || m.state != WasOldest && !m.leaving() && !m.find(from).OlderThan(m.find(m.cfg.Self)) {
			return false
		}
		m.handOver(now, from, round, out)
		return true
	case HandingOver:
		if from == m.peer {
			m.peerRound = round
			m.send(from, Message{Kind: HandOverInProgress, Round: round}, out)
			return true
		}
	case End:
		if from == m.peer { // the peer has missed the reply
			m.send(from, Message{Kind: HandOverDone, Round: round, Hosted: m.soleHost}, out)
			return true
		}
	case Start, BecomingOldest, Stopping:
	}
	return false
}

// handOver ends the instance. peer is the node that requested the hand-over, or zero.
func (m *Manager) handOver(now time.Duration, peer identity.Node, round uint64, out *Effects) {
	m.peer, m.peerRound = peer, round
	m.become(HandingOver, out)
	if m.instance == 0 {
		if !m.dropLease(out) {
			m.handOverDone(now, out)
		}
		return
	}
	if !peer.IsZero() {
		m.send(peer, Message{Kind: HandOverInProgress, Round: round}, out)
	}
	m.stop(out)
}

// handOverDone continues when the instance has ended and the lease is released.
func (m *Manager) handOverDone(now time.Duration, out *Effects) {
	out.ExitDone = m.exited
	m.startPending = false
	m.previous = nil
	switch {
	case m.stuck:
		m.stuck = false
		m.begin(now, out)
		return
	case m.peer.IsZero():
		if !m.newOldest.IsZero() && !m.removals.gone(m.newOldest) {
			m.previous = append(m.previous, m.newOldest)
		}
		m.become(Younger, out)
		return
	}
	m.send(m.peer, Message{Kind: HandOverDone, Round: m.peerRound, Hosted: m.soleHost}, out)
	if m.leaving() {
		m.become(End, out)
		return
	}
	m.previous = append(m.previous, m.peer)
	m.become(Younger, out)
}

func (m *Manager) leaving() bool {
	return m.exited || isLeaving(m.find(m.cfg.Self))
}

func (m *Manager) selfExiting(out *Effects) {
	if m.exited {
		return
	}
	m.exited = true
	switch m.state {
	case Start, Younger, End:
		out.ExitDone = true
	case BecomingOldest, AcquiringLease, Oldest, WasOldest, HandingOver, Stopping:
		out.ExitDone = m.preparing
	}
	m.reorder(func() { m.drop(m.cfg.Self) })
}

// identify replies to a proxy if the instance runs here. The proxy of this node asks as well.
func (m *Manager) identify(from identity.Node, round uint64, out *Effects) {
	if m.instance == 0 || m.ending || m.find(from) == nil {
		return
	}
	if !slices.Contains(m.watchers, from) {
		m.watchers = append(m.watchers, from)
	}
	m.send(from, Message{Kind: Identified, Round: round}, out)
}

func (m *Manager) notifyProxies(out *Effects) {
	for _, n := range m.watchers {
		if m.find(n) != nil {
			m.send(n, Message{Kind: InstanceGone}, out)
		}
	}
	m.watchers = nil
}
