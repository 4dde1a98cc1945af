// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"slices"

	"github.com/refold-io/refold/identity"
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
	switch f.Kind {
	case Forward:
		m.forwarded(from, f)
	case NotHome:
		if m.homes[f.Shard] == from {
			delete(m.homes, f.Shard)
			if len(m.buffers[f.Shard]) > 0 {
				m.ask([]Shard{f.Shard})
			}
		}
	case Flush:
		m.answerFlush(from, f)
	case Flushed:
		i := slices.IndexFunc(m.flushes, func(at *flush) bool { return at.id == f.ID && at.to == from })
		if i >= 0 {
			m.flushed(m.flushes[i], f.Shards)
		}
	}
}

// forwarded takes a message of another region. If the shard is not here, it is passed on once.
func (m *Machine) forwarded(from identity.Node, f Frame) {
	if h := m.hosts[f.Shard]; h != nil && !h.stopping {
		m.keep(f.Shard, message{f.Token, from, f.Hop})
		return
	}
	m.frame(from, Frame{Kind: NotHome, Shard: f.Shard})
	switch {
	case m.stopped, m.stopping:
		m.refuse(f.Shard, f.Token, RegionStopped)
	default:
		m.keep(f.Shard, message{f.Token, from, f.Hop})
	}
}

// keep puts a message behind those that wait, and sends what can go.
func (m *Machine) keep(s Shard, msg message) {
	waiting := len(m.buffers[s])
	m.buffers[s] = append(m.buffers[s], msg)
	m.buffered++
	m.drain(s)
	if left := len(m.buffers[s]); left > waiting && m.buffered > m.cfg.BufferSize {
		m.keepOnly(s, m.buffers[s][:left-1])
		m.refuse(s, msg.token, BufferFull)
	} else if waiting == 0 && left > 0 {
		m.ask([]Shard{s})
	}
}

// keepOnly replaces what waits for a shard.
func (m *Machine) keepOnly(s Shard, kept []message) {
	m.buffered += len(kept) - len(m.buffers[s])
	if m.buffers[s] = kept; len(kept) == 0 {
		delete(m.buffers, s)
	}
}

// drain sends what waits for a shard, as far as it can go.
func (m *Machine) drain(s Shard) {
	h, n := m.hosts[s], m.homes[s]
	switch {
	case h != nil && !h.stopping:
		m.drainHere(s, h)
	case n.IsZero() || len(m.buffers[s]) == 0 || !m.clear(s, n):
	default:
		for _, msg := range m.buffers[s] {
			f := Frame{Kind: Forward, Shard: s, Token: msg.token}
			if msg.hop > 0 {
				m.refuse(s, msg.token, NoHome)
				continue
			}
			if !msg.from.IsZero() {
				f.Hop, m.relayed[s] = 1, true
			}
			m.frame(n, f)
			m.path[s] = n
		}
		m.keepOnly(s, nil)
	}
}

// drainHere passes what waits to a shard on this node. What others have sent waits only for the shard.
func (m *Machine) drainHere(s Shard, h *host) {
	if !h.running {
		if m.now < h.restartAt || len(m.buffers[s]) == 0 && !m.cfg.Remember {
			return
		}
		m.start(s)
	}
	own := slices.ContainsFunc(m.buffers[s], func(msg message) bool { return msg.from.IsZero() })
	own = own && !h.moving && m.clear(s, m.cfg.Self)
	var kept []message
	for _, msg := range m.buffers[s] {
		if msg.from.IsZero() && !own {
			kept = append(kept, msg)
			continue
		}
		m.act(Pass, s, msg.token)
	}
	m.keepOnly(s, kept)
}
