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
)

// see takes the members. What was under way to those that are gone is not waited for.
func (m *Machine) see(members []membership.Member) {
	gone := membership.Gone(m.members, members)
	m.members = members
	if len(gone) > 0 { // mostly nobody is
		m.forget(gone)
	}
	// What the removed have passed on for others is not waited for by those others any more: it must not come later.
	for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
		m.refuseAll(s, &m.buffers[s].second, NoHome, func(msg message) bool { return !m.member(msg.from) })
		m.tidy(s)
	}
	for _, f := range slices.Clone(m.flushes) {
		if !m.member(f.to) {
			m.flushed(f, nil)
		}
	}
	if bosses := m.likely(); !slices.Equal(bosses, m.bosses) {
		m.bosses = bosses
		m.unregister()
	}
}

// few are so many nodes that one is found quicker among them by looking at each.
const few = 8

// forget forgets homes on nodes that are gone, and paths there. All others are members.
func (m *Machine) forget(gone []identity.Node) {
	isGone := func(n identity.Node) bool {
		if len(gone) <= few { // their UIDs are others, mostly: it is not looked at names
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
	for hop, path := range m.path {
		maps.DeleteFunc(path, func(s Shard, n identity.Node) bool { return isGone(n) && m.flushing[hop][s] == nil })
	}
}

func (m *Machine) member(n identity.Node) bool {
	_, found := membership.Find(m.members, n)
	return found
}

// likely returns who may have the coordinator: from the oldest to the first one that stays.
func (m *Machine) likely() []identity.Node {
	var first *membership.Member // that stays
	for i := range m.members {
		if at := &m.members[i]; m.able(at) && !goes(at) && (first == nil || at.OlderThan(first)) {
			first = at
		}
	}
	var found []*membership.Member
	for i := range m.members {
		if at := &m.members[i]; m.able(at) && (first == nil || at == first || at.OlderThan(first)) {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b *membership.Member) int {
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

// able reports whether a member may have the coordinator.
func (m *Machine) able(at *membership.Member) bool {
	switch at.Status {
	case membership.Up, membership.Leaving, membership.Exiting, membership.PreparingForShutdown, membership.ReadyForShutdown:
		return at.HasRole(m.cfg.Role)
	case membership.Joining, membership.WeaklyUp, membership.Down, membership.Removed:
	}
	return false
}

// goes reports whether a member leaves.
func goes(at *membership.Member) bool {
	return at.Status == membership.Leaving || at.Status == membership.Exiting
}

func (m *Machine) say(to identity.Node, msg coordinator.Message) {
	msg.Type, msg.Instance = m.cfg.Type, m.cfg.Instance
	m.out.Say = append(m.out.Say, Saying{to, msg})
}

func (m *Machine) sayAll(kind coordinator.Kind) {
	for _, n := range m.bosses {
		m.say(n, coordinator.Message{Kind: kind})
	}
}

// firstPause is after what it registers again at first.
func firstPause(cfg Config) time.Duration { return max(100*time.Millisecond, cfg.RetryInterval/8) }

// unregister looks for the coordinator.
func (m *Machine) unregister() {
	m.registered = false
	if !m.stopped {
		m.seek()
	}
}

// seek asks for the coordinator, soon again and then more and more rarely.
func (m *Machine) seek() {
	m.soughtAt, m.pause = m.now, firstPause(m.cfg)
	m.register()
}

func (m *Machine) register() {
	m.registerAt = m.now + m.pause
	m.pause = min(2*m.pause, m.cfg.RetryInterval)
	m.asked()
	kind := coordinator.Register
	if m.cfg.Proxy {
		kind = coordinator.RegisterProxy
	}
	for _, n := range m.bosses {
		m.say(n, coordinator.Message{Kind: kind, Settings: m.cfg.Settings})
	}
}

// ask asks where shards are.
func (m *Machine) ask(shards []Shard) {
	if !m.registered {
		return
	}
	shards = slices.DeleteFunc(shards, func(s Shard) bool { _, known := m.Home(s); return known && !m.isMoving(s) })
	for part := range slices.Chunk(shards, coordinator.Batch) {
		m.asked()
		m.say(m.boss, coordinator.Message{Kind: coordinator.GetHomes, Term: m.term, Shards: slices.Clone(part)})
	}
}

// isMoving reports whether this node has a shard and expects to lose it.
func (m *Machine) isMoving(s Shard) bool {
	h := m.hosts[s]
	return h != nil && (h.moving || h.stopping)
}

// heeds reports whether a message about a shard is not late.
func (m *Machine) heeds(msg coordinator.Message, s Shard) bool {
	at := said{msg.Term, msg.Round}
	if s >= coordinator.MaxShards || at.before(m.last[s]) {
		return false
	}
	m.last[s] = at
	return true
}

// hear takes a message of a coordinator.
func (m *Machine) hear(from identity.Node, msg coordinator.Message) {
	if msg.Type != m.cfg.Type || msg.Instance != m.cfg.Instance && msg.Kind != coordinator.RegisterAgain {
		return
	}
	if msg.Term < m.term {
		m.say(from, coordinator.Message{Kind: coordinator.Fenced, Term: m.term})
		return
	}
	if m.stopped {
		m.say(from, coordinator.Message{Kind: coordinator.RegionStopped})
		return
	}
	m.heard()
	if msg.Term > m.term {
		m.term, m.boss, m.rounds = msg.Term, from, nil
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
			m.ask(slices.Sorted(maps.Keys(m.buffers)))
		}
	case coordinator.RegisterAgain:
		if m.registered {
			m.unregister()
		}
	case coordinator.Homes:
		for _, h := range msg.Homes {
			for _, s := range h.Shards {
				if m.heeds(msg, s) {
					m.home(s, h.Node)
				}
			}
		}
	case coordinator.Host:
		m.host(from, msg)
	case coordinator.BeginHandOff:
		m.beginHandOff(from, msg)
	case coordinator.HandOff:
		m.handOff(from, msg)
	default:
	}
}
