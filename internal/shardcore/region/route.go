// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

func (m *Machine) frame(to identity.Node, f Frame) {
	m.out.Frames = append(m.out.Frames, Outgoing{to, f})
}

func (m *Machine) refuse(s Shard, token uint64, reason Reason) {
	m.out.Refused = append(m.out.Refused, Refusal{s, token, reason})
}

// send takes a message of this node.
func (m *Machine) send(in Send) {
	if m.stopped || m.stopping {
		m.refuse(in.Shard, in.Token, RegionStopped)
		return
	}
	m.keep(in.Shard, message{token: in.Token})
}

// arrived takes a frame of another region.
func (m *Machine) arrived(from identity.Node, f Frame) {
	if f.Shard >= coordinator.MaxShards {
		return
	}
	switch f.Kind {
	case Forward:
		m.forwarded(from, f)
	case NotHome:
		if m.homes[f.Shard] == from {
			delete(m.homes, f.Shard)
			if m.buffers[f.Shard] != nil {
				m.ask([]Shard{f.Shard})
			}
		}
	case Flush:
		m.answerFlush(from, f)
	case Flushed:
		i := slices.IndexFunc(m.flushes, func(at *flush) bool { return at.id == f.ID && at.to == from })
		if i >= 0 && f.Instance == m.cfg.Instance {
			m.flushed(m.flushes[i], f.Shards)
		}
	}
}

// forwarded takes a message of another region. If the shard is not here, it is passed on once.
func (m *Machine) forwarded(from identity.Node, f Frame) {
	msg := message{f.Token, from, f.Hop}
	if h := m.hosts[f.Shard]; h == nil || h.stopping {
		m.frame(from, Frame{Kind: NotHome, Shard: f.Shard})
		if m.stopped || m.stopping {
			m.refuse(f.Shard, f.Token, RegionStopped)
			return
		}
	}
	m.keep(f.Shard, msg)
}

// keep sends a message, or puts it behind those that wait.
func (m *Machine) keep(s Shard, msg message) {
	b := m.buffers[s]
	if b == nil {
		if m.wake(s, true); m.pass(s, msg) {
			return
		}
		m.ask([]Shard{s})
		b = &buffer{}
		m.buffers[s] = b
	}
	line := b.of(msg)
	*line = append(*line, msg)
	m.buffered++
	m.drain(s)
	if len(*line) > 0 && m.buffered > m.cfg.BufferSize {
		*line = (*line)[:len(*line)-1]
		m.buffered--
		m.tidy(s)
		m.refuse(s, msg.token, BufferFull)
	}
}

// drain sends what waits for a shard, as far as it can go.
func (m *Machine) drain(s Shard) {
	b := m.buffers[s]
	m.wake(s, b != nil)
	if b == nil {
		return
	}
	for _, line := range b.lines() {
		n := 0
		for n < len(*line) && m.pass(s, (*line)[n]) {
			n++
		}
		m.buffered -= n
		if *line = (*line)[n:]; len(*line) == 0 {
			*line = nil
		}
	}
	m.tidy(s)
}

// wake starts a shard of this node that has failed, if it is needed.
func (m *Machine) wake(s Shard, needed bool) {
	if h := m.hosts[s]; h != nil && !h.stopping && !h.running && m.now >= h.restartAt && (needed || m.cfg.Remember) {
		m.start(s)
	}
}

// pass sends a message if it can go, and reports whether it went. What others have sent waits, for a shard on this node, only for the
// shard. What has met a region already that is not the home ends at the second one.
func (m *Machine) pass(s Shard, msg message) bool {
	h, n := m.hosts[s], m.homes[s]
	own := msg.from.IsZero()
	f := Frame{Kind: Forward, Shard: s, Token: msg.token}
	if !own {
		f.Hop = relayed
	}
	switch {
	case h != nil && !h.stopping:
		if !h.running || own && (h.moving || !m.clear(s, m.cfg.Self, sent)) {
			return false
		}
		m.act(Pass, s, msg.token)
	case n.IsZero():
		return false
	case msg.hop > 0:
		m.refuse(s, msg.token, NoHome)
	case !m.clear(s, n, f.Hop):
		return false
	default:
		m.frame(n, f)
		m.path[f.Hop][s] = n
	}
	return true
}
