// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// oldestTold gives way to another oldest.
func (m *Manager) oldestTold(now time.Duration, oldest identity.Node, out *Effects) {
	switch {
	case oldest == m.cfg.Self:
	case !m.exited && m.removals.known(oldest):
		// It was removed and is the oldest again: one of these is not true yet. It is safest to
		// have no instance until it is removed once more.
		m.handOver(now, identity.Node{}, 0, out)
	default:
		m.leaveAcquiring(out)
		m.newOldest = oldest
		m.retries = 0
		m.become(WasOldest, out)
		m.askNext(now, out)
	}
}

// askNext asks the new oldest to ask for the hand-over, in case that it doesn't know
// whom to ask.
func (m *Manager) askNext(now time.Duration, out *Effects) {
	m.retries++
	m.retryAt = now + m.cfg.RetryInterval
	if !m.newOldest.IsZero() {
		m.send(m.newOldest, Message{Kind: TakeOverFromMe}, out)
	}
}

func (m *Manager) retryTakeOver(now time.Duration, out *Effects) {
	exhausted := m.retries > m.cfg.takeOverRetries()
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

// receive takes a message of another manager.
func (m *Manager) receive(now time.Duration, from identity.Node, msg Message, out *Effects) {
	// Who is no member has no say in this, but may have ended its instance on its way out.
	heeded := msg.Singleton == m.cfg.Name && from != m.cfg.Self && (m.find(from) != nil || msg.Kind == HandOverDone && msg.Hosted)
	if msg.Kind == Identify && msg.Singleton == m.cfg.Name {
		m.identify(from, msg.Round, out)
		return
	}
	if heeded {
		switch msg.Kind {
		case HandOverToMe:
			heeded = m.askedToHandOver(now, from, msg.Round, out)
		case HandOverInProgress:
			heeded = m.isAnswer(from, msg)
			if heeded && !m.underway {
				m.underway = true
				m.retryAt = now + slowly*m.cfg.RetryInterval
			}
		case HandOverDone:
			heeded = m.isAnswer(from, msg) && m.previousIsDone(now, from, msg.Hosted, out)
		case TakeOverFromMe:
			heeded = m.askedToTakeOver(from, out)
		case Identify, Identified, InstanceGone: // between a manager and a proxy
			heeded = false
		}
	}
	if !heeded {
		out.Notes = append(out.Notes, Note{Kind: Ignored, State: m.state, Peer: from, Message: msg.Kind})
	}
}

// isAnswer reports whether a message answers the request that this node waits
// for: it is from the one that was asked, and about no earlier hand-over.
func (m *Manager) isAnswer(from identity.Node, msg Message) bool {
	return m.state == BecomingOldest && len(m.previous) > 0 && m.previous[0] == from && msg.Round == m.round
}

// previousIsDone goes on after a HandOverDone.
func (m *Manager) previousIsDone(now time.Duration, from identity.Node, hosted bool, out *Effects) bool {
	if hosted {
		m.becomeOldest(true, out)
		return true
	}
	// It knows of no instance of its own, so those before it have to be asked. One that is
	// down may not know yet that it was the oldest; its removal is waited for.
	if m.find(from).Status == membership.Down {
		return false
	}
	m.previous = m.previous[1:]
	if m.allGone() {
		m.becomeOldest(false, out)
		return true
	}
	m.underway = false
	m.askPrevious(now, out)
	return true
}

func (m *Manager) askedToTakeOver(from identity.Node, out *Effects) bool {
	switch m.state {
	case Oldest, AcquiringLease: // it need not wait for anything
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
		// It may be about to become the oldest on its way out.
		if m.leaving() {
			return false
		}
		m.send(from, Message{Kind: HandOverDone, Round: round}, out)
		return true
	case Oldest, AcquiringLease, WasOldest:
		// A younger node can't be the oldest while this one stays: the request is late, or
		// this node is no member any more and will learn it.
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
		if from == m.peer { // it did not hear that
			m.send(from, Message{Kind: HandOverDone, Round: round, Hosted: m.sure}, out)
			return true
		}
	case Start, BecomingOldest, Stopping:
	}
	return false
}

// handOver ends the instance, for a peer or for nobody.
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

// handOverDone goes on when the instance has ended, and the lease is released.
func (m *Manager) handOverDone(now time.Duration, out *Effects) {
	out.ExitDone = m.exited
	m.again = false
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
	m.send(m.peer, Message{Kind: HandOverDone, Round: m.peerRound, Hosted: m.sure}, out)
	if m.leaving() {
		m.become(End, out)
		return
	}
	m.previous = append(m.previous, m.peer)
	m.become(Younger, out)
}

// leaving reports whether this node is on its way out.
func (m *Manager) leaving() bool {
	return m.exited || onItsWayOut(m.find(m.cfg.Self))
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

// identify tells a proxy that the instance is here, if it is. This node's own proxy
// asks too.
func (m *Manager) identify(from identity.Node, round uint64, out *Effects) {
	if m.instance == 0 || m.ending || m.find(from) == nil {
		return
	}
	if !slices.Contains(m.watchers, from) {
		m.watchers = append(m.watchers, from)
	}
	m.send(from, Message{Kind: Identified, Round: round}, out)
}

// unwatch tells those who have asked that the instance is gone, or about to be.
func (m *Manager) unwatch(out *Effects) {
	for _, n := range m.watchers {
		if m.find(n) != nil {
			m.send(n, Message{Kind: InstanceGone}, out)
		}
	}
	m.watchers = nil
}
