// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// Messages of local senders and relayed messages have separate paths, indexed by hop. Hence each
// flush ends. A flush of relayed messages waits only for homes, because relayed messages are not
// relayed again. A flush of local messages waits only for homes and for relayed messages.
const (
	sent    = 0
	relayed = 1
)

// flush is a pending request to a region, which replies when all earlier messages have arrived.
type flush struct {
	id     uint64
	to     identity.Node
	hop    int // hop of the flushed messages
	shards []Shard
	held   bool // the messages arrived at a region that does not host the shards, and wait there or were relayed
}

// pendingAck is a BeginHandOff that waits for flushes.
type pendingAck struct {
	from   identity.Node
	at     messageClock
	shards []Shard
}

// beginHandOff forgets the homes of shards, and acknowledges when no message to them is in flight.
// The home itself acknowledges at once.
func (m *Machine) beginHandOff(from identity.Node, msg coordinator.Message) {
	var shards []Shard
	for _, s := range msg.Shards {
		if !m.isCurrent(msg, s) {
			continue
		}
		delete(m.homes, s)
		if h := m.hosted[s]; h != nil {
			h.moving = true
		}
		shards = append(shards, s)
	}
	m.startFlush(shards, sent)
	m.startFlush(shards, relayed)
	at := messageClock{msg.Term, msg.Round}
	if !slices.ContainsFunc(m.pendingAcks, func(r pendingAck) bool { return r.at == at }) {
		m.pendingAcks = append(m.pendingAcks, pendingAck{from, at, shards})
	}
	m.acknowledge()
}

// acknowledge acknowledges the hand-offs that wait for no flush.
func (m *Machine) acknowledge() {
	pending := func(f *flush) bool { return f != nil && !f.held }
	m.pendingAcks = slices.DeleteFunc(m.pendingAcks, func(r pendingAck) bool {
		if slices.ContainsFunc(r.shards, func(s Shard) bool { return pending(m.flushing[sent][s]) || pending(m.flushing[relayed][s]) }) {
			return false
		}
		m.send(r.from, coordinator.Message{Kind: coordinator.BeginHandOffAck, Term: r.at.term, Round: r.at.round})
		return true
	})
}

// startFlush flushes the paths of shards with one frame for each node.
func (m *Machine) startFlush(shards []Shard, hop int) {
	var begun []*flush
	for _, s := range shards {
		n, used := m.inFlight[hop][s]
		if !used || m.flushing[hop][s] != nil {
			continue
		}
		i := slices.IndexFunc(begun, func(f *flush) bool { return f.to == n })
		if i < 0 {
			m.flushIDs++
			i = len(begun)
			begun = append(begun, &flush{id: m.flushIDs, to: n, hop: hop})
		}
		begun[i].shards = append(begun[i].shards, s)
		m.flushing[hop][s] = begun[i]
	}
	m.flushes = append(m.flushes, begun...)
	for _, f := range begun {
		m.sendFlush(f)
	}
}

func (m *Machine) sendFlush(f *flush) {
	m.sendFrame(f.to, Frame{Kind: Flush, Hop: f.hop, Instance: m.cfg.Instance, ID: f.id, Shards: f.shards})
}

// flushed handles a reply. Messages of held shards wait at a region that does not host these
// shards. They reach no shard that is being handed off. Later messages must not overtake them, so
// the flush is repeated.
func (m *Machine) flushed(f *flush, held []Shard) {
	var done, left []Shard
	for _, s := range f.shards {
		if slices.Contains(held, s) {
			left = append(left, s)
			continue
		}
		done = append(done, s)
		delete(m.flushing[f.hop], s)
		delete(m.inFlight[f.hop], s)
	}
	if f.shards, f.held = left, true; len(left) == 0 {
		m.flushes = slices.DeleteFunc(m.flushes, func(other *flush) bool { return other == f })
	}
	m.acknowledge()
	for _, s := range done {
		m.drain(s)
	}
}

// pathClear reports whether messages may go to a node. It starts a flush of the path to another
// node.
func (m *Machine) pathClear(s Shard, n identity.Node, hop int) bool {
	if at, used := m.inFlight[hop][s]; used && at != n {
		m.startFlush([]Shard{s}, hop)
	}
	return m.flushing[hop][s] == nil
}

// replyFlush replies to a flush with the held shards: those for which a message of the requesting
// region waits here, or may be in flight to another region.
func (m *Machine) replyFlush(from identity.Node, f Frame) {
	var held, passedOn []Shard
	for _, s := range f.Shards {
		var line []message
		if b := m.buffers[s]; b != nil {
			line = *b.queueOf(message{from: from, hop: f.Hop})
		}
		_, onward := m.inFlight[relayed][s]
		if onward = onward && f.Hop == sent; onward {
			passedOn = append(passedOn, s)
		}
		if onward || slices.ContainsFunc(line, func(msg message) bool { return msg.from == from }) {
			held = append(held, s)
		}
	}
	m.startFlush(passedOn, relayed)
	m.sendFrame(from, Frame{Kind: Flushed, Instance: f.Instance, ID: f.ID, Shards: held})
}

// allArrived reports whether no message of this region is in flight. It starts the flushes that
// this requires.
func (m *Machine) allArrived() bool {
	for hop, path := range m.inFlight {
		if len(path) > len(m.flushing[hop]) { // if the numbers are equal, all shards are being flushed already
			m.startFlush(slices.Sorted(maps.Keys(path)), hop)
		}
	}
	return !slices.ContainsFunc(m.flushes, func(f *flush) bool { return !f.held })
}
