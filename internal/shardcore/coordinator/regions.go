// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// termination is a region that has terminated, or that will count as terminated when it is due.
type termination struct {
	node   identity.Node
	due    time.Duration
	queued bool
}

// maxHomes is the maximum number of batches of homes in reply to a registration. The region
// requests other homes when it needs them.
const maxHomes = 10

func (m *Machine) updateMembers(in Members) {
	gone := membership.Gone(m.view.Members, in.Members)
	m.removals = append(m.removals, Removals(m.now, m.view.Members, in.Members, m.cfg.RemovalMargin)...)
	m.view = in
	for _, n := range gone {
		delete(m.instances, n)
		m.refused = without(m.refused, n)
	}
	m.removals = slices.DeleteFunc(m.removals, func(r Removal) bool { return m.now > r.Until })
	if m.phase == 0 {
		m.enterPhase(Loading)
		m.startLoad()
	}
	if m.phase < Settling {
		return
	}
	for _, r := range m.state.regions {
		if m.member(r.Node) == nil && !m.isTerminating(r.Node) {
			m.terminateAt(r.Node, m.terminationTime(r.Node))
		}
	}
	for _, n := range m.state.proxies {
		if has(gone, n) {
			m.queue = append(m.queue, request{kind: ProxyTerminated, node: n})
		}
	}
	for _, n := range gone {
		m.ackAll(n)
	}
}

// terminationTime returns the time from which the shards of a removed node may start elsewhere: at
// that time the node is certainly down. If the time of the removal is unknown, the removal counts
// as long ago.
func (m *Machine) terminationTime(n identity.Node) time.Duration {
	at := m.now
	for _, r := range slices.Concat(m.view.Removed, m.removals) {
		if r.Node == n {
			at = max(at, r.Until)
		}
	}
	return at
}

// terminateAt schedules the termination of a region. The earliest of several times applies.
func (m *Machine) terminateAt(n identity.Node, due time.Duration) {
	i := slices.IndexFunc(m.terminating, func(t termination) bool { return t.node == n })
	if i < 0 {
		m.note(Note{Kind: Terminating, Node: n})
		m.terminating = append(m.terminating, termination{node: n, due: due})
		i = len(m.terminating) - 1
	}
	t := &m.terminating[i]
	t.due = min(t.due, due)
	m.tickTerminations()
}

func (m *Machine) tickTerminations() {
	for i := range m.terminating {
		if t := &m.terminating[i]; !t.queued && m.now >= t.due {
			t.queued = true
			m.queue = append(m.queue, request{kind: RegionTerminated, node: t.node})
		}
	}
}

func (m *Machine) isTerminating(n identity.Node) bool {
	return slices.ContainsFunc(m.terminating, func(t termination) bool { return t.node == n })
}

func (m *Machine) notTerminating(n identity.Node) {
	m.terminating = slices.DeleteFunc(m.terminating, func(t termination) bool { return t.node == n })
}

// unavailable reports whether a region must not get shards.
func (m *Machine) unavailable(n identity.Node) bool { return has(m.leaving, n) || m.isTerminating(n) }

// register registers a region or proxy, or answers a registered one. A leaving region is allocated
// no shards. Shards that a previous coordinator allocated to it are handed off. A leaving region
// that was not registered before becomes a proxy, because its buffered commands need homes.
func (m *Machine) register(from identity.Node, msg Message) bool {
	member := m.member(from)
	if member == nil || member.Status == identity.Down {
		return false
	}
	leaves := from != m.cfg.Self && (member.Status == identity.Leaving || member.Status == identity.Exiting)
	if from != m.cfg.Self && member.Status != identity.Up && !leaves && !m.isRegistered(from) {
		return false
	}
	last := m.instances[from]
	if msg.Instance == 0 || msg.Instance < last || msg.Kind == Register && !member.HasRole(m.cfg.Role) {
		return false
	}
	if fields := m.cfg.Settings.Differences(msg.Settings); len(fields) > 0 {
		m.refuseRegion(msg, Note{Kind: RegionRefused, Node: from, Fields: fields})
		return true
	}
	m.refused = without(m.refused, from)
	m.instances[from] = msg.Instance
	m.regionResponded(from, &msg)
	if has(m.invited, from) {
		m.invited = without(m.invited, from)
		if m.phase == Settling && !slices.ContainsFunc(m.invited, m.isInvited) {
			m.settleAt = m.now // all have responded
		}
	}
	shards, known := m.state.Region(from)
	known = known && !m.isTerminating(from)
	if msg.Kind == RegisterProxy || leaves && !known {
		m.registerProxy(from)
		return true
	}
	if !known {
		m.queue = append(m.queue, request{kind: RegionRegistered, node: from})
		return true
	}
	m.alive = with(m.alive, from)
	m.acknowledge(from)
	if msg.Instance > last {
		// The previous instance and all its shards have stopped.
		m.leaving = without(m.leaving, from)
		if m.phase == Active {
			m.host(from, m.notMoving(shards))
		}
	}
	m.answerUndecided(shards)
	return true
}

// registerProxy registers a proxy, or answers a registered one. A proxy whose node is about to be
// terminated is registered again.
func (m *Machine) registerProxy(from identity.Node) {
	if m.nextState().HasProxy(from) && !m.isTerminating(from) {
		m.acknowledge(from)
		return
	}
	m.queue = append(m.queue, request{kind: ProxyRegistered, node: from})
}

func (m *Machine) notMoving(shards []Shard) []Shard {
	return slices.DeleteFunc(slices.Clone(shards), func(s Shard) bool { return m.moving[s] != nil })
}

func (m *Machine) regionRegistered(n identity.Node) {
	m.alive = with(m.alive, n)
	m.acknowledge(n)
	if m.member(n) == nil { // the node was removed while the registration was being stored
		m.terminateAt(n, m.terminationTime(n))
	}
}

func (m *Machine) proxyRegistered(n identity.Node) {
	m.acknowledge(n)
	if m.member(n) == nil {
		m.queue = append(m.queue, request{kind: ProxyTerminated, node: n})
	}
}

// acknowledge answers a registration with the homes of shards.
func (m *Machine) acknowledge(n identity.Node) {
	if !m.isRegistered(n) {
		return // the answer follows when the registration is stored
	}
	m.send(n, Message{Kind: RegisterAck, Round: m.round})
	left := maxHomes * Batch
	var homes []Home
	for _, r := range m.state.regions {
		if m.instances[r.Node] == 0 {
			continue // the region may have stopped, although the previous coordinator has not stored this fact
		}
		shards := m.notMoving(r.Shards)
		if shards = shards[:min(left, len(shards))]; len(shards) > 0 && !m.isTerminating(r.Node) {
			homes = append(homes, Home{r.Node, shards})
			left -= len(shards)
		}
	}
	m.sendHomes(n, homes)
}

func (m *Machine) sendHomes(to identity.Node, homes []Home) {
	var batch []Home
	size := 0
	flush := func() {
		if size > 0 {
			m.send(to, Message{Kind: Homes, Round: m.round, Homes: batch})
			batch, size = nil, 0
		}
	}
	for _, h := range homes {
		for len(h.Shards) > 0 {
			n := min(len(h.Shards), Batch-size)
			batch = append(batch, Home{h.Node, slices.Clone(h.Shards[:n])})
			h.Shards = h.Shards[n:]
			if size += n; size == Batch {
				flush()
			}
		}
	}
	flush()
}

// gracefulShutdown hands off all shards of a region. The region repeats the request, so shards that
// are allocated between two requests are handed off as well.
func (m *Machine) gracefulShutdown(from identity.Node, msg Message) bool {
	shards, known := m.state.Region(from)
	if !known || m.phase != Active || m.isTerminating(from) || msg.Instance < m.instances[from] {
		return false
	}
	m.leaving = with(m.leaving, from)
	m.beginHandOff(shards)
	return true
}

func (m *Machine) regionStopped(from identity.Node, msg Message) bool {
	if m.member(from) == nil || msg.Instance < m.instances[from] {
		return false // the instance has been replaced, or its termination is already due
	}
	// The registration as region or proxy may not be stored yet. Termination of an unregistered
	// node has no effect.
	m.queue = append(m.queue, request{kind: ProxyTerminated, node: from})
	m.terminateAt(from, m.now)
	return true
}

func (m *Machine) regionTerminated(n identity.Node, shards []Shard) {
	m.notTerminating(n)
	m.loadForgotten(n)
	m.alive = without(m.alive, n)
	m.leaving = without(m.leaving, n)
	m.ackAll(n)
	for _, s := range shards {
		delete(m.unstarted, s)
		m.requestNewHome(s, n)
		if at := m.requests.byShard[s]; at != nil {
			at.removed = n
		}
	}
	if m.stopping && n == m.cfg.Self {
		m.stop(Terminated)
	}
}
