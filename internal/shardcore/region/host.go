// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

func (m *Machine) addAction(kind ActionKind, s Shard, token uint64) {
	m.out.Actions = append(m.out.Actions, Action{kind, s, m.hosted[s].generation, token})
}

func (m *Machine) setHome(s Shard, n identity.Node) {
	switch {
	case n == m.cfg.Self:
		m.hostShard(s)
	case !m.member(n): // the node was removed, but the coordinator does not reflect the removal yet
	default:
		if h := m.hosted[s]; h != nil && !h.stopping {
			m.abort(s) // the shard has another home without a HandOff to this node
		} else if h != nil {
			h.startAgain = false
		}
		m.homes[s] = n
		m.drain(s)
	}
}

func (m *Machine) hostShard(s Shard) bool {
	if m.cfg.Proxy || m.leaving && m.hosted[s] == nil || m.stopping {
		return false
	}
	delete(m.homes, s)
	h := m.hosted[s]
	switch {
	case h == nil:
		m.hosted[s] = &hostedShard{}
		m.start(s)
	case h.stopping:
		h.startAgain = !m.leaving
	default:
		h.moving = false
	}
	m.drain(s)
	return true
}

func (m *Machine) start(s Shard) {
	m.generations++
	h := m.hosted[s]
	h.generation, h.running = m.generations, true
	m.addAction(Start, s, 0)
}

func (m *Machine) handleHost(from identity.Node, msg coordinator.Message) {
	var done []Shard
	for _, s := range msg.Shards {
		if m.isCurrent(msg, s) && m.hostShard(s) {
			done = append(done, s)
		}
	}
	if m.leaving {
		m.send(from, coordinator.Message{Kind: coordinator.GracefulShutdown})
	}
	if len(done) > 0 || len(msg.Shards) == 0 {
		m.send(from, coordinator.Message{Kind: coordinator.Hosted, Term: msg.Term, Round: msg.Round, Shards: done, Followed: m.followed})
	}
}

func (m *Machine) handleHandOff(from identity.Node, msg coordinator.Message) {
	var none []Shard
	for _, s := range msg.Shards {
		if !m.isCurrent(msg, s) {
			continue
		}
		h := m.hosted[s]
		if h == nil {
			none = append(none, s)
			continue
		}
		h.replyDue, h.replyTo, h.replyClock, h.startAgain = true, from, messageClock{msg.Term, msg.Round}, false
		if !h.stopping {
			m.stopShard(s)
		}
	}
	if len(none) > 0 {
		m.send(from, coordinator.Message{Kind: coordinator.Stopped, Term: msg.Term, Round: msg.Round, Shards: none})
	}
}

// stopShard stops a shard after all messages that were passed to it.
func (m *Machine) stopShard(s Shard) {
	h := m.hosted[s]
	h.stopping = true
	m.refuseOthers(s)
	if h.running {
		m.addAction(HandOff, s, 0)
	} else {
		m.shardGone(s)
	}
}

// refuseOthers refuses forwarded messages for a failed shard: the next messages of their senders go
// to another home.
func (m *Machine) refuseOthers(s Shard) {
	if b := m.buffers[s]; b != nil {
		m.refuseAll(&b.second, shard.HandedOff, anyMessage)
		m.refuseAll(&b.first, shard.HandedOff, anyMessage)
		m.deleteIfEmpty(s)
	}
}

func (m *Machine) abort(s Shard) {
	h := m.hosted[s]
	h.stopping, h.startAgain = true, false
	if h.running {
		m.addAction(Abort, s, 0)
		return
	}
	m.shardGone(s)
}

func (m *Machine) shardDone(in ShardDone) {
	h := m.hosted[in.Shard]
	if h == nil || !h.running || h.generation != in.Generation {
		return
	}
	h.running, h.restartAt = false, m.now
	if h.stopping {
		m.shardGone(in.Shard)
		return
	}
	if m.cfg.Remember {
		h.restartAt += m.cfg.RestartBackoff
		m.restartAt = min(m.restartAt, h.restartAt)
	}
	m.drain(in.Shard)
}

// shardGone handles the complete end of a shard on this node.
func (m *Machine) shardGone(s Shard) {
	h := m.hosted[s]
	delete(m.hosted, s)
	if h.replyDue {
		m.send(h.replyTo, coordinator.Message{Kind: coordinator.Stopped, Term: h.replyClock.term, Round: h.replyClock.round, Shards: []Shard{s}})
	}
	if h.startAgain {
		m.hostShard(s)
		return
	}
	m.drain(s)
}
