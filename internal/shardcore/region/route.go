// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

func (m *Machine) sendFrame(to identity.Node, f Frame) {
	m.out.Frames = append(m.out.Frames, OutgoingFrame{to, f})
}

func (m *Machine) refuse(token uint64, reason shard.Reason) {
	m.out.Refused = append(m.out.Refused, shard.Refusal{Token: token, Reason: reason})
}

func (m *Machine) sendLocal(in Send) {
	if m.stopped || m.stopping {
		m.refuse(in.Token, shard.Stopped)
		return
	}
	m.enqueue(in.Shard, message{token: in.Token})
}

func (m *Machine) receiveFrame(from identity.Node, f Frame) {
	if f.Shard >= coordinator.MaxShards {
		return
	}
	switch f.Kind {
	case Forward:
		m.receiveForward(from, f)
	case NotHome:
		if m.homes[f.Shard] == from {
			delete(m.homes, f.Shard)
			if m.buffers[f.Shard] != nil {
				m.requestHomes([]Shard{f.Shard})
			}
		}
	case Flush:
		m.replyFlush(from, f)
	case Flushed:
		i := slices.IndexFunc(m.flushes, func(at *flush) bool { return at.id == f.ID && at.to == from })
		if i >= 0 && f.Instance == m.cfg.Instance {
			m.flushed(m.flushes[i], f.Shards)
		}
	}
}

// receiveForward handles a message of another region. A message for a shard that is not here is
// relayed once.
func (m *Machine) receiveForward(from identity.Node, f Frame) {
	msg := message{f.Token, from, f.Hop}
	if h := m.hosted[f.Shard]; h == nil || h.stopping {
		m.sendFrame(from, Frame{Kind: NotHome, Shard: f.Shard})
		if m.stopped || m.stopping {
			m.refuse(f.Token, shard.Stopped)
			return
		}
	}
	m.enqueue(f.Shard, msg)
}

// enqueue sends a message, or appends it to the waiting ones.
func (m *Machine) enqueue(s Shard, msg message) {
	b := m.buffers[s]
	if b == nil {
		if m.restartIfNeeded(s, true); m.trySend(s, msg) {
			return
		}
		m.requestHomes([]Shard{s})
		b = &buffer{}
		m.buffers[s] = b
	}
	line := b.queueOf(msg)
	*line = append(*line, msg)
	m.buffered++
	m.drain(s)
	if len(*line) > 0 && m.buffered > m.cfg.BufferSize {
		*line = (*line)[:len(*line)-1]
		m.buffered--
		m.deleteIfEmpty(s)
		m.refuse(msg.token, shard.BufferFull)
	}
}

// drain sends the waiting messages of a shard that can be sent.
func (m *Machine) drain(s Shard) {
	b := m.buffers[s]
	m.restartIfNeeded(s, b != nil)
	if b == nil {
		return
	}
	for _, line := range b.queues() {
		n := 0
		for n < len(*line) && m.trySend(s, (*line)[n]) {
			n++
		}
		m.buffered -= n
		if *line = (*line)[n:]; len(*line) == 0 {
			*line = nil
		}
	}
	m.deleteIfEmpty(s)
}

// restartIfNeeded starts a failed shard of this node if a message waits for it, or if its entities
// are remembered.
func (m *Machine) restartIfNeeded(s Shard, needed bool) {
	if h := m.hosted[s]; h != nil && !h.stopping && !h.running && m.now >= h.restartAt && (needed || m.cfg.Remember) {
		m.start(s)
	}
}

// trySend sends a message and returns true, or returns false if it must wait. Forwarded messages
// for a shard on this node wait only until the shard runs. A message that was relayed before is
// refused if the shard is not here.
func (m *Machine) trySend(s Shard, msg message) bool {
	h, n := m.hosted[s], m.homes[s]
	own := msg.from.IsZero()
	f := Frame{Kind: Forward, Shard: s, Token: msg.token}
	if !own {
		f.Hop = relayed
	}
	switch {
	case h != nil && !h.stopping:
		if !h.running || own && (h.moving || !m.pathClear(s, m.cfg.Self, sent)) {
			return false
		}
		m.addAction(Pass, s, msg.token)
	case n.IsZero():
		return false
	case msg.hop > 0:
		m.refuse(msg.token, shard.NotHome)
	case !m.pathClear(s, n, f.Hop):
		return false
	default:
		m.sendFrame(n, f)
		m.inFlight[f.Hop][s] = n
	}
	return true
}

type message struct {
	token uint64
	from  identity.Node // zero for a local sender
	hop   int           // relayed by a region that is not the home
}

// buffer holds the waiting messages of a shard in queues that do not wait for each other. All
// messages of a queue wait for the same condition.
type buffer struct {
	own    []message // messages of local senders
	first  []message // forwarded, may be relayed
	second []message // relayed
}

func (b *buffer) queues() [3]*[]message { return [3]*[]message{&b.second, &b.first, &b.own} }

func (b *buffer) queueOf(msg message) *[]message {
	switch {
	case msg.from.IsZero():
		return &b.own
	case msg.hop > 0:
		return &b.second
	}
	return &b.first
}

func (m *Machine) deleteIfEmpty(s Shard) {
	if b := m.buffers[s]; b != nil && len(b.own)+len(b.first)+len(b.second) == 0 {
		delete(m.buffers, s)
	}
}

func (m *Machine) refuseAll(line *[]message, reason shard.Reason, which func(message) bool) {
	var kept []message
	for _, msg := range *line {
		if which(msg) {
			m.refuse(msg.token, reason)
			m.buffered--
			continue
		}
		kept = append(kept, msg)
	}
	*line = kept
}

func anyMessage(message) bool { return true }

func (m *Machine) refuseShard(s Shard, reason shard.Reason, which func(message) bool) {
	for _, line := range m.buffers[s].queues() {
		m.refuseAll(line, reason, which)
	}
	m.deleteIfEmpty(s)
}

// dropAbandoned refuses messages whose callers no longer wait. The other messages of a queue still
// wait for the same condition.
func (m *Machine) dropAbandoned(tokens []uint64) {
	gone := make(map[uint64]struct{}, len(tokens))
	for _, token := range tokens {
		gone[token] = struct{}{}
	}
	for _, s := range slices.Sorted(maps.Keys(m.buffers)) {
		m.refuseShard(s, shard.Abandoned, func(msg message) bool { _, found := gone[msg.token]; return found })
	}
}
