// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

func (m *Machine) act(kind ActionKind, s Shard, token uint64) {
	m.out.Actions = append(m.out.Actions, Action{kind, s, m.hosts[s].generation, token})
}

// home takes the home of a shard.
func (m *Machine) home(s Shard, n identity.Node) {
	switch {
	case n == m.cfg.Self:
		m.own(s)
	case !m.member(n): // it was removed, and the coordinator did not know yet
	default:
		if h := m.hosts[s]; h != nil && !h.stopping {
			m.abort(s) // it was lost, and nobody said so
		} else if h != nil {
			h.again = false
		}
		m.homes[s] = n
		m.drain(s)
	}
}

// own begins or goes on to host a shard, if the region can.
func (m *Machine) own(s Shard) bool {
	if m.cfg.Proxy || m.leaving && m.hosts[s] == nil || m.stopping {
		return false
	}
	delete(m.homes, s)
	h := m.hosts[s]
	switch {
	case h == nil:
		m.hosts[s] = &host{}
		m.start(s)
	case h.stopping:
		h.again = !m.leaving
	default:
		h.moving = false
	}
	m.drain(s)
	return true
}

func (m *Machine) start(s Shard) {
	m.generations++
	h := m.hosts[s]
	h.generation, h.running = m.generations, true
	m.act(Start, s, 0)
}

func (m *Machine) host(from identity.Node, msg coordinator.Message) {
	var done []Shard
	for _, s := range msg.Shards {
		if m.heeds(msg, s) && m.own(s) {
			done = append(done, s)
		}
	}
	if m.leaving {
		m.say(from, coordinator.Message{Kind: coordinator.GracefulShutdown})
	}
	if len(done) > 0 || len(msg.Shards) == 0 {
		m.say(from, coordinator.Message{Kind: coordinator.Hosted, Term: msg.Term, Round: msg.Round, Shards: done})
	}
}

func (m *Machine) handOff(from identity.Node, msg coordinator.Message) {
	var none []Shard
	for _, s := range msg.Shards {
		if !m.heeds(msg, s) {
			continue
		}
		h := m.hosts[s]
		if h == nil {
			none = append(none, s)
			continue
		}
		h.answers, h.to, h.at, h.again = true, from, said{msg.Term, msg.Round}, false
		if !h.stopping {
			m.stopShard(s)
		}
	}
	if len(none) > 0 {
		m.say(from, coordinator.Message{Kind: coordinator.Stopped, Term: msg.Term, Round: msg.Round, Shards: none})
	}
}

// stopShard stops a shard behind all that was passed to it.
func (m *Machine) stopShard(s Shard) {
	h := m.hosts[s]
	h.stopping = true
	m.refuseOthers(s)
	if h.running {
		m.act(HandOff, s, 0)
	} else {
		m.gone(s)
	}
}

// refuseOthers refuses what others have sent for a shard that was here and failed: the next messages of their senders go
// to another home.
func (m *Machine) refuseOthers(s Shard) {
	if b := m.buffers[s]; b != nil {
		m.refuseAll(s, &b.second, HandedOff, all)
		m.refuseAll(s, &b.first, HandedOff, all)
		m.tidy(s)
	}
}

// abort ends a shard by force.
func (m *Machine) abort(s Shard) {
	h := m.hosts[s]
	h.stopping, h.again = true, false
	if h.running {
		m.act(Abort, s, 0)
		return
	}
	m.gone(s)
}

func (m *Machine) shardDone(in ShardDone) {
	h := m.hosts[in.Shard]
	if h == nil || !h.running || h.generation != in.Generation {
		return
	}
	h.running, h.restartAt = false, m.now
	if h.stopping {
		m.gone(in.Shard)
		return
	}
	if m.cfg.Remember {
		h.restartAt += m.cfg.RestartBackoff
		m.restartAt = min(m.restartAt, h.restartAt)
	}
	m.drain(in.Shard)
}

// gone takes note that nothing of a shard runs here any more.
func (m *Machine) gone(s Shard) {
	h := m.hosts[s]
	delete(m.hosts, s)
	if h.answers {
		m.say(h.to, coordinator.Message{Kind: coordinator.Stopped, Term: h.at.term, Round: h.at.round, Shards: []Shard{s}})
	}
	if h.again {
		m.own(s)
		return
	}
	m.drain(s)
}
