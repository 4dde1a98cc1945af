// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// updateMembers handles a new membership. The region no longer waits for messages in flight to
// removed nodes.
func (m *Machine) updateMembers(members []identity.Member) {
	gone := membership.Gone(m.members, members)
	m.members = members
	if len(gone) > 0 { // rare
		m.forgetNodes(gone)
	}
	// A removed node sends no flush for the messages that it relayed, so they must not arrive
	// later.
	for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
		m.refuseAll(&m.buffers[s].second, shard.NotHome, func(msg message) bool { return !m.member(msg.from) })
		m.deleteIfEmpty(s)
	}
	for _, f := range slices.Clone(m.flushes) {
		if !m.member(f.to) {
			m.flushed(f, nil)
		}
	}
	if candidates := m.findCandidates(); !slices.Equal(candidates, m.candidates) {
		m.candidates = candidates
		m.unregister()
	}
}

// linearSearchMax is the number of nodes up to which a linear search is faster than a binary one.
const linearSearchMax = 8

// forgetNodes forgets homes on removed nodes, and the paths to them.
func (m *Machine) forgetNodes(gone []identity.Node) {
	isGone := func(n identity.Node) bool {
		if len(gone) <= linearSearchMax { // the UIDs differ, so that names are rarely compared
			return slices.Contains(gone, n)
		}
		_, found := slices.BinarySearchFunc(gone, n, identity.Node.Compare)
		return found
	}
	var lost []Shard
	for s, n := range m.homes {
		if isGone(n) {
			lost = append(lost, s)
		}
	}
	slices.Sort(lost)
	for _, s := range lost {
		delete(m.homes, s)
		m.drain(s)
	}
	for hop, path := range m.inFlight {
		maps.DeleteFunc(path, func(s Shard, n identity.Node) bool { return isGone(n) && m.flushing[hop][s] == nil })
	}
}

func (m *Machine) member(n identity.Node) bool {
	_, found := membership.Find(m.members, n)
	return found
}

// findCandidates returns the nodes that may run the coordinator: those from the oldest one to the
// oldest one that is not leaving.
func (m *Machine) findCandidates() []identity.Node {
	var first *identity.Member // the oldest member that is not leaving
	for i := range m.members {
		at := &m.members[i]
		leaves := at.Status == identity.Leaving || at.Status == identity.Exiting
		if m.canHostCoordinator(at) && !leaves && (first == nil || at.OlderThan(first)) {
			first = at
		}
	}
	var found []*identity.Member
	for i := range m.members {
		if at := &m.members[i]; m.canHostCoordinator(at) && (first == nil || at == first || at.OlderThan(first)) {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b *identity.Member) int {
		if a.OlderThan(b) {
			return -1
		}
		return 1
	})
	nodes := make([]identity.Node, len(found))
	for i, at := range found {
		nodes[i] = at.Node
	}
	return nodes
}

func (m *Machine) canHostCoordinator(at *identity.Member) bool {
	switch at.Status {
	case identity.Up, identity.Leaving, identity.Exiting, identity.PreparingForShutdown, identity.ReadyForShutdown:
		return at.HasRole(m.cfg.Role)
	case identity.Joining, identity.WeaklyUp, identity.Down, identity.Removed:
	}
	return false
}

func (m *Machine) send(to identity.Node, msg coordinator.Message) {
	msg.Type, msg.Instance = m.cfg.Type, m.cfg.Instance
	m.out.Messages = append(m.out.Messages, OutgoingMessage{to, msg})
}

func (m *Machine) sendToCandidates(msg coordinator.Message) {
	for _, n := range m.candidates {
		m.send(n, msg)
	}
}

// firstPause is the first interval of repeated registrations.
func firstPause(cfg Config) time.Duration { return max(100*time.Millisecond, cfg.RetryInterval/8) }

func (m *Machine) unregister() {
	m.registered = false
	if !m.stopped {
		m.startRegistering()
	}
}

// startRegistering sends registrations at increasing intervals.
func (m *Machine) startRegistering() {
	m.registeringSince, m.pause = m.now, firstPause(m.cfg)
	m.register()
}

func (m *Machine) register() {
	m.registerAt = m.now + m.pause
	m.pause = min(2*m.pause, m.cfg.RetryInterval)
	m.noteRequest()
	kind := coordinator.Register
	if m.cfg.Proxy {
		kind = coordinator.RegisterProxy
	}
	m.sendToCandidates(coordinator.Message{Kind: kind, Settings: m.cfg.Settings})
}

func (m *Machine) requestHomes(shards []Shard) {
	if !m.registered {
		return
	}
	shards = slices.DeleteFunc(shards, func(s Shard) bool {
		_, known := m.Home(s)
		h := m.hosted[s]
		return known && (h == nil || !h.moving && !h.stopping)
	})
	for part := range slices.Chunk(shards, coordinator.Batch) {
		m.noteRequest()
		m.send(m.coordinatorNode, coordinator.Message{Kind: coordinator.GetHomes, Term: m.term, Shards: slices.Clone(part)})
	}
}

// isCurrent reports whether a message about a shard is not older than the last message about it.
func (m *Machine) isCurrent(msg coordinator.Message, s Shard) bool {
	at, last := messageClock{msg.Term, msg.Round}, m.lastHeard[s]
	if s >= coordinator.MaxShards || at.term < last.term || at.term == last.term && at.round < last.round {
		return false
	}
	m.lastHeard[s] = at
	return true
}

func (m *Machine) receiveMessage(from identity.Node, msg coordinator.Message) {
	if msg.Type != m.cfg.Type || !m.mayCoordinate(from) || msg.Instance != m.cfg.Instance && msg.Kind != coordinator.RegisterAgain {
		return
	}
	if msg.Term < m.term && !m.distrustTerm() {
		m.send(from, coordinator.Message{Kind: coordinator.Fenced, Term: m.term})
		return
	}
	if !m.believes(from, msg.Term) {
		return
	}
	if m.stopped {
		m.send(from, coordinator.Message{Kind: coordinator.RegionStopped})
		return
	}
	m.waitingSince, m.verifying = coordinator.Never, false
	m.coordinatorNode = from
	if msg.Term > m.term {
		m.term, m.pendingAcks = msg.Term, nil
		if msg.Kind != coordinator.RegisterAck {
			m.unregister()
		}
	}
	switch msg.Kind {
	case coordinator.Refused:
		m.refusal = &msg.Settings
	case coordinator.RegisterAck:
		m.refusal = nil
		if !m.registered {
			m.registered = true
			m.requestHomes(slices.Sorted(maps.Keys(m.buffers)))
		}
	case coordinator.RegisterAgain:
		if m.registered {
			m.unregister()
		}
	case coordinator.Homes:
		for _, h := range msg.Homes {
			for _, s := range h.Shards {
				if m.isCurrent(msg, s) {
					m.setHome(s, h.Node)
				}
			}
		}
	case coordinator.Host:
		m.handleHost(from, msg)
	case coordinator.BeginHandOff:
		m.beginHandOff(from, msg)
	case coordinator.HandOff:
		m.handleHandOff(from, msg)
	default:
	}
}

func (m *Machine) mayCoordinate(n identity.Node) bool {
	at := membership.Lookup(m.members, n)
	return at != nil && m.canHostCoordinator(at)
}

// believes reports whether the region follows a message of its own term or of a higher one. Each
// term belongs to one node. Only candidates can begin a term that replaces another one.
func (m *Machine) believes(from identity.Node, term uint64) bool {
	if term == m.term && !m.coordinatorNode.IsZero() {
		return from == m.coordinatorNode
	}
	return m.term == 0 || slices.Contains(m.candidates, from)
}

// distrustTerm handles a message of a lower term. Either its sender is superseded, or the higher
// term was never claimed: the region requests the stored term. A proxy has no store. It drops its
// term if the node that announced this term can no longer run the coordinator. In this case,
// distrustTerm returns true.
func (m *Machine) distrustTerm() bool {
	switch {
	case m.cfg.Proxy && !slices.Contains(m.candidates, m.coordinatorNode):
		m.dropTerm(0)
		return true
	case !m.cfg.Proxy && m.now >= m.checkTermAt:
		m.checkTermAt = m.now + m.cfg.RetryInterval
		m.out.CheckTerm = m.term
	}
	return false
}

// termChecked drops a term that the store does not confirm.
func (m *Machine) termChecked(in TermChecked) {
	if in.Term == m.term && in.Stored < m.term {
		m.dropTerm(in.Stored)
	}
}

// dropTerm replaces the term by a lower one.
func (m *Machine) dropTerm(term uint64) {
	m.term, m.coordinatorNode, m.pendingAcks = term, identity.Node{}, nil
	maps.DeleteFunc(m.lastHeard, func(_ Shard, at messageClock) bool { return at.term > term })
	m.unregister()
}

// patience is the number of RetryIntervals without a message after which a region verifies its
// registration. It is above 1, because a coordinator may itself wait before it can reply with a
// home.
const patience = 3

// Silence returns for how long a request has waited for a message of a coordinator, 0 without a
// request.
func (m *Machine) Silence() time.Duration {
	if m.stopped || m.waitingSince == coordinator.Never {
		return 0
	}
	return m.now - m.waitingSince
}

// noteRequest records that a reply of a coordinator is expected. A node that is not a member yet
// expects none.
func (m *Machine) noteRequest() {
	if m.waitingSince == coordinator.Never && m.member(m.cfg.Self) {
		m.waitingSince = m.now
	}
}

// registering reports whether the region repeats its registration.
func (m *Machine) registering() bool { return !m.stopped && (!m.registered || m.verifying) }

// willStop reports whether the region stops after it has handed off its shards.
func (m *Machine) willStop() bool { return m.leaving && !m.keepsRouting }

// verifyCoordinator registers again if the coordinator has been silent. A live coordinator replies
// to a registration at once, even if it cannot reply to other requests yet. A region that will stop
// registers again as soon as a message waits for a home.
func (m *Machine) verifyCoordinator() {
	switch {
	case m.stopped:
	case m.registering():
		if m.willStop() {
			m.waitingSince = min(m.waitingSince, m.now)
		}
	case m.willStop() && m.cfg.GiveUpAfter > 0 && m.awaitsHomes() || m.Silence() >= patience*m.cfg.RetryInterval:
		m.verifying = true
		m.startRegistering()
	}
}

func (m *Machine) awaitsHomes() bool {
	for s := range m.buffers { // the order does not matter
		if _, known := m.Home(s); !known {
			return true
		}
	}
	return false
}

// giveUpAt returns when a region that will stop refuses the messages that wait for homes, unless a
// coordinator replies before.
func (m *Machine) giveUpAt() time.Duration {
	switch {
	case m.cfg.GiveUpAfter == 0 || m.stopped || !m.willStop() || m.buffered == 0 || !m.registering():
		return coordinator.Never
	case m.refusal != nil: // a rejected region gets no homes
		return m.now
	case m.waitingSince == coordinator.Never: // a message has just arrived
		return coordinator.Never
	}
	return max(m.waitingSince, m.registeringSince) + m.cfg.GiveUpAfter
}

// giveUp refuses the messages that wait for homes when the time giveUpAt has come.
func (m *Machine) giveUp() {
	if m.now < m.giveUpAt() {
		return
	}
	m.refuseWaiting(func(s Shard) bool { _, known := m.Home(s); return !known })
}
