// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// termination is a region that is gone, or will count as gone.
type termination struct {
	node   identity.Node
	due    time.Duration
	queued bool
}

// maxHomes is how many batches of homes a region gets when it registers. It asks for
// others.
const maxHomes = 10

// see takes the members.
func (m *Machine) see(in Members) {
	gone := membership.Gone(m.view.Members, in.Members)
	m.view = in
	for _, n := range gone {
		m.removals = append(m.removals, Removal{n, m.now})
		delete(m.instances, n)
		m.refused = without(m.refused, n)
	}
	m.removals = slices.DeleteFunc(m.removals, func(r Removal) bool { return m.now-r.At > m.cfg.RemovalMargin })
	if m.phase == 0 {
		m.become(Loading)
		m.startLoad()
	}
	if m.phase < Settling {
		return
	}
	for _, r := range m.state.regions {
		if m.member(r.Node) == nil && !m.isTerminating(r.Node) {
			m.expect(r.Node, m.goneAt(r.Node))
		}
	}
	for _, n := range m.state.proxies {
		if has(gone, n) {
			m.queue = append(m.queue, request{kind: ProxyTerminated, node: n})
		}
	}
	for _, n := range gone {
		m.acked(n)
	}
}

// goneAt returns when what a removed node hosted may be started elsewhere. It is sure to be down
// by then. If nobody knows when it was removed, that is long ago.
func (m *Machine) goneAt(n identity.Node) time.Duration {
	at := m.now
	for _, r := range slices.Concat(m.view.Removed, m.removals) {
		if r.Node == n {
			at = max(at, r.At+m.cfg.RemovalMargin)
		}
	}
	return at
}

// expect terminates a region at a time, or earlier if that was expected.
func (m *Machine) expect(n identity.Node, due time.Duration) {
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

// unavailable reports whether a region gets no shards.
func (m *Machine) unavailable(n identity.Node) bool { return has(m.leaving, n) || m.isTerminating(n) }

// register takes in a region or a proxy, or answers one that is known. Who leaves gets no shards any more, but what the coordinator before has given it
// has to be taken from it; and who was not known before is taken in as a proxy, since what waits there needs homes.
func (m *Machine) register(from identity.Node, msg Message) bool {
	member := m.member(from)
	if member == nil || member.Status == membership.Down {
		return false
	}
	leaves := from != m.cfg.Self && (member.Status == membership.Leaving || member.Status == membership.Exiting)
	if from != m.cfg.Self && member.Status != membership.Up && !leaves && !m.knows(from) {
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
	m.heard(from, &msg)
	m.invited = without(m.invited, from)
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
		// One before is gone, with all that ran there.
		m.leaving = without(m.leaving, from)
		if m.phase == Active {
			m.host(from, m.resting(shards))
		}
	}
	return true
}

// registerProxy takes in who only sends, or answers it. One that is about to be terminated is another one.
func (m *Machine) registerProxy(from identity.Node) {
	if m.next().HasProxy(from) && !m.isTerminating(from) {
		m.acknowledge(from)
		return
	}
	m.queue = append(m.queue, request{kind: ProxyRegistered, node: from})
}

// resting are those of the shards that are not being moved.
func (m *Machine) resting(shards []Shard) []Shard {
	return slices.DeleteFunc(slices.Clone(shards), func(s Shard) bool { return m.moving[s] != nil })
}

func (m *Machine) regionRegistered(n identity.Node) {
	m.alive = with(m.alive, n)
	m.acknowledge(n)
	if m.member(n) == nil { // removed meanwhile
		m.expect(n, m.goneAt(n))
	}
}

func (m *Machine) proxyRegistered(n identity.Node) {
	m.acknowledge(n)
	if m.member(n) == nil {
		m.queue = append(m.queue, request{kind: ProxyTerminated, node: n})
	}
}

// acknowledge answers a registration, with the homes of shards.
func (m *Machine) acknowledge(n identity.Node) {
	if !m.knows(n) {
		return // it is answered when it is stored
	}
	m.send(n, Message{Kind: RegisterAck, Round: m.round})
	left := maxHomes * Batch
	var homes []Home
	for _, r := range m.state.regions {
		if m.instances[r.Node] == 0 {
			continue // it may have stopped, and the coordinator before has not stored that
		}
		shards := m.resting(r.Shards)
		if shards = shards[:min(left, len(shards))]; len(shards) > 0 && !m.isTerminating(r.Node) {
			homes = append(homes, Home{r.Node, shards})
			left -= len(shards)
		}
	}
	m.sendHomes(n, homes)
}

// sendHomes sends homes in batches.
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

// gracefulShutdown moves all shards of a region. It asks again and again, so what is
// allocated meanwhile is moved as well.
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
		return false // it has been replaced, or counts as gone in time
	}
	// Either may not even be stored yet. What is not registered is not terminated.
	m.queue = append(m.queue, request{kind: ProxyTerminated, node: from})
	m.expect(from, m.now)
	return true
}

// regionTerminated gives the shards of a region other homes.
func (m *Machine) regionTerminated(n identity.Node, shards []Shard) {
	m.notTerminating(n)
	m.alive = without(m.alive, n)
	m.leaving = without(m.leaving, n)
	m.acked(n)
	for _, s := range shards {
		delete(m.unstarted, s)
		m.homeless(s)
	}
	if m.stopping && n == m.cfg.Self {
		m.stop(Terminated)
	}
}
