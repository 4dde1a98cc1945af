// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package region

import (
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/coordinator"
)

// flush asks a region whether all that was sent to it has arrived.
type flush struct {
	id     uint64
	to     identity.Node
	shards []Shard
	held   bool // what was sent has arrived where the shards are not, and waits there or was passed on
}

// round is a BeginHandOff that waits for flushes.
type round struct {
	from   identity.Node
	at     said
	shards []Shard
}

// beginHandOff forgets homes, and acknowledges when nothing is under way to them. The home itself acknowledges
// at once.
func (m *Machine) beginHandOff(from identity.Node, msg coordinator.Message) {
	var shards []Shard
	for _, s := range msg.Shards {
		if !m.heeds(msg, s) {
			continue
		}
		delete(m.homes, s)
		if h := m.hosts[s]; h != nil {
			h.moving = true
		}
		shards = append(shards, s)
	}
	m.startFlush(shards)
	at := said{msg.Term, msg.Round}
	if !slices.ContainsFunc(m.rounds, func(r round) bool { return r.at == at }) {
		m.rounds = append(m.rounds, round{from, at, shards})
	}
	m.acknowledge()
}

// acknowledge answers the rounds that wait for nothing any more.
func (m *Machine) acknowledge() {
	m.rounds = slices.DeleteFunc(m.rounds, func(r round) bool {
		if slices.ContainsFunc(r.shards, func(s Shard) bool { f := m.flushing[s]; return f != nil && !f.held }) {
			return false
		}
		m.say(r.from, coordinator.Message{Kind: coordinator.BeginHandOffAck, Term: r.at.term, Round: r.at.round})
		return true
	})
}

// startFlush flushes the paths of shards. One frame names all that go to a node.
func (m *Machine) startFlush(shards []Shard) {
	var begun []*flush
	for _, s := range shards {
		n, sent := m.path[s]
		if !sent || m.flushing[s] != nil {
			continue
		}
		i := slices.IndexFunc(begun, func(f *flush) bool { return f.to == n })
		if i < 0 {
			m.flushIDs++
			i = len(begun)
			begun = append(begun, &flush{id: m.flushIDs, to: n})
		}
		begun[i].shards = append(begun[i].shards, s)
		m.flushing[s] = begun[i]
	}
	m.flushes = append(m.flushes, begun...)
	for _, f := range begun {
		m.sendFlush(f)
	}
}

func (m *Machine) sendFlush(f *flush) {
	m.frame(f.to, Frame{Kind: Flush, ID: f.id, Shards: f.shards})
}

// flushed takes note that nothing is under way any more, but for shards whose messages are held where they are not. Those come
// to no shard that is being handed off, but nothing may overtake them: it is asked again.
func (m *Machine) flushed(f *flush, held []Shard) {
	var done, left []Shard
	for _, s := range f.shards {
		if slices.Contains(held, s) {
			left = append(left, s)
			continue
		}
		done = append(done, s)
		delete(m.flushing, s)
		delete(m.path, s)
		delete(m.relayed, s)
	}
	if f.shards, f.held = left, true; len(left) == 0 {
		m.flushes = slices.DeleteFunc(m.flushes, func(other *flush) bool { return other == f })
	}
	m.acknowledge()
	for _, s := range done {
		m.drain(s)
	}
}

// clear reports whether messages may go to a node, and flushes the path to another one before.
func (m *Machine) clear(s Shard, n identity.Node) bool {
	if at, sent := m.path[s]; sent && at != n {
		m.startFlush([]Shard{s})
	}
	return m.flushing[s] == nil
}

// answerFlush answers, and names the shards for which something of the asker waits here, or may be on its way from here to another
// region.
func (m *Machine) answerFlush(from identity.Node, f Frame) {
	var relayed, held []Shard
	for _, s := range f.Shards {
		if m.relayed[s] {
			relayed = append(relayed, s)
		}
		if m.relayed[s] || slices.ContainsFunc(m.buffers[s], func(msg message) bool { return msg.from == from }) {
			held = append(held, s)
		}
	}
	m.startFlush(relayed)
	m.frame(from, Frame{Kind: Flushed, ID: f.ID, Shards: held})
}
