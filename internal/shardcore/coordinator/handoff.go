// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// handOff moves shards away from where they are: first all regions and proxies stop sending to
// them, then their homes stop them.
type handOff struct {
	round    uint64
	shards   []Shard         // that are not stopped yet
	waiting  []identity.Node // who has not acknowledged, sorted
	stopping bool            // all have
	repeatAt time.Duration
	deadline time.Duration
	askers   map[Shard][]identity.Node
}

// beginHandOff moves those of the shards that have a home and are not being moved.
func (m *Machine) beginHandOff(shards []Shard) {
	shards = slices.DeleteFunc(m.resting(shards), func(s Shard) bool {
		home, found := m.state.Home(s)
		return !found || m.isTerminating(home)
	})
	slices.Sort(shards)
	for part := range slices.Chunk(slices.Compact(shards), Batch) {
		m.beginRound(slices.Clone(part))
	}
}

func (m *Machine) beginRound(shards []Shard) {
	h := &handOff{
		round: m.nextRound(), shards: shards, askers: map[Shard][]identity.Node{},
		repeatAt: m.now + m.cfg.RetryInterval, deadline: m.now + m.cfg.HandOffTimeout,
	}
	for _, s := range shards {
		m.moving[s] = h
		delete(m.unstarted, s)
	}
	for _, r := range m.state.regions {
		h.waiting = with(h.waiting, r.Node)
	}
	for _, n := range m.state.proxies {
		h.waiting = with(h.waiting, n)
	}
	// Who was removed sends nothing any more.
	h.waiting = slices.DeleteFunc(h.waiting, func(n identity.Node) bool { return m.member(n) == nil })
	m.handOffs = append(m.handOffs, h)
	m.begun += len(shards)
	m.note(Note{Kind: HandOffBegun, Shards: shards, Count: len(h.waiting)})
	m.urge(h)
}

// urge sends what the round waits for an answer to.
func (m *Machine) urge(h *handOff) {
	if len(h.waiting) == 0 {
		h.stopping = true
	}
	if !h.stopping {
		for _, n := range h.waiting {
			m.sendShards(n, BeginHandOff, h.round, h.shards)
		}
		return
	}
	byHome := map[identity.Node][]Shard{}
	var homes []identity.Node
	for _, s := range h.shards {
		home, found := m.state.Home(s)
		if !found {
			continue
		}
		if byHome[home] == nil {
			homes = append(homes, home)
		}
		byHome[home] = append(byHome[home], s)
	}
	for _, n := range homes {
		m.sendShards(n, HandOff, h.round, byHome[n])
	}
}

func (m *Machine) handOffAcked(from identity.Node, round uint64) bool {
	i := slices.IndexFunc(m.handOffs, func(h *handOff) bool { return h.round == round })
	if i < 0 || !has(m.handOffs[i].waiting, from) {
		return false
	}
	m.ack(m.handOffs[i], from)
	return true
}

// ack notes that a region sends nothing any more.
func (m *Machine) ack(h *handOff, n identity.Node) {
	h.waiting = without(h.waiting, n)
	if len(h.waiting) == 0 && !h.stopping {
		h.repeatAt = m.now + m.cfg.RetryInterval
		m.urge(h)
	}
}

// acked notes that a region or proxy that is gone sends nothing any more.
func (m *Machine) acked(n identity.Node) {
	for _, h := range slices.Clone(m.handOffs) {
		if has(h.waiting, n) {
			m.ack(h, n)
		}
	}
}

// shardsStopped takes the homes of shards away that run no more. Only the answer to the last round
// counts: they may have been started since another one.
func (m *Machine) shardsStopped(from identity.Node, msg Message) bool {
	var stopped []Shard
	for _, s := range msg.Shards {
		h := m.moving[s]
		if home, _ := m.state.Home(s); h == nil || !h.stopping || h.round != msg.Round || home != from {
			continue
		}
		if i := slices.Index(h.shards, s); i >= 0 {
			h.shards = slices.Delete(slices.Clone(h.shards), i, i+1)
			stopped = append(stopped, s)
		}
	}
	if len(stopped) == 0 {
		return false
	}
	m.sweep()
	m.queue = append(m.queue, request{kind: HomesDeallocated, shards: stopped})
	return true
}

// homesDeallocated gives shards other homes.
func (m *Machine) homesDeallocated(shards []Shard) {
	m.note(Note{Kind: HandOffDone, Shards: shards, Count: len(shards)})
	for _, s := range shards {
		m.homeless(s)
	}
}

// dropMoving forgets that a shard is being moved.
func (m *Machine) dropMoving(h *handOff, s Shard) {
	delete(m.moving, s)
	if i := slices.Index(h.shards, s); i >= 0 {
		h.shards = slices.Delete(slices.Clone(h.shards), i, i+1)
	}
	m.sweep()
}

// sweep removes rounds that have nothing left to do.
func (m *Machine) sweep() {
	m.handOffs = slices.DeleteFunc(m.handOffs, func(h *handOff) bool { return len(h.shards) == 0 })
}

func (m *Machine) tickHandOffs() {
	for _, h := range slices.Clone(m.handOffs) {
		switch {
		case m.now >= h.deadline:
			m.giveUp(h)
		case m.now >= h.repeatAt:
			h.repeatAt = m.now + m.cfg.RetryInterval
			m.urge(h)
		}
	}
}

// giveUp leaves shards where they are. Their home may have stopped them, or not started them yet: it is
// told to. If it shuts down, it asks again.
func (m *Machine) giveUp(h *handOff) {
	late := slices.Clone(h.waiting)
	left := h.shards
	byHome := map[identity.Node][]Shard{}
	var homes []identity.Node
	for _, s := range left {
		home, _ := m.state.Home(s)
		homes, byHome[home] = with(homes, home), append(byHome[home], s)
		delete(m.stopFor, s)
	}
	if h.stopping {
		late = homes
	}
	note := Note{Kind: HandOffFailed, Shards: left, Count: len(late)}
	if len(late) > 0 {
		note.Node = late[0]
	}
	m.note(note)
	for _, s := range left {
		askers := h.askers[s]
		m.dropMoving(h, s)
		for _, n := range askers {
			m.getHomes(n, []Shard{s})
		}
	}
	for _, n := range homes {
		if !m.unavailable(n) {
			m.host(n, byHome[n])
		}
	}
}

// stopShards stops shards that are not needed. They are not given another home before
// somebody asks.
func (m *Machine) stopShards(from identity.Node, shards []Shard) bool {
	if m.cfg.Remember || m.phase != Active || m.preparing() {
		return false
	}
	var begin, stopped []Shard
	for _, s := range shards {
		_, found := m.state.Home(s)
		_, soon := m.next().Home(s)
		switch {
		case found:
			m.stopFor[s] = with(m.stopFor[s], from)
			begin = append(begin, s)
		case !soon:
			stopped = append(stopped, s)
		}
	}
	m.sendShards(from, Stopped, m.round, stopped)
	m.beginHandOff(begin)
	return true
}

// askRebalance asks the strategy which shards to move.
func (m *Machine) askRebalance() {
	if m.phase != Active || m.rebalance != 0 || m.preparing() || len(m.state.regions) == 0 {
		return
	}
	m.rebalance = m.id()
	m.out.Rebalance = &AskRebalance{ID: m.rebalance, View: m.strategyView()}
}

func (m *Machine) rebalanced(in Rebalanced) {
	if in.ID != m.rebalance || in.ID == 0 {
		return
	}
	m.rebalance = 0
	if m.phase == Active && !m.preparing() {
		m.beginHandOff(slices.DeleteFunc(slices.Clone(in.Shards), m.isStarting))
	}
}

// isStarting reports whether a region was told to host a shard, and has not said that it does. What was sent to it may wait there, and
// would have to be passed on: twice, if the shard went on like this.
func (m *Machine) isStarting(s Shard) bool {
	_, starting := m.unstarted[s]
	return starting
}
