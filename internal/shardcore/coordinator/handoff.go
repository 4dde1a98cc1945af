// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

// handOff is a round that moves shards: first all regions and proxies stop sending to them, then
// their homes stop them.
type handOff struct {
	round      uint64
	shards     []Shard         // shards that have not stopped yet
	waiting    []identity.Node // nodes that have not acknowledged BeginHandOff, sorted
	stopping   bool            // all nodes have acknowledged
	begun      time.Duration
	repeatAt   time.Duration
	deadline   time.Duration
	requesters map[Shard][]identity.Node
}

// beginHandOff moves the given shards that have a home and are not moving.
func (m *Machine) beginHandOff(shards []Shard) {
	shards = slices.DeleteFunc(m.notMoving(shards), func(s Shard) bool {
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
		round: m.nextRound(), shards: shards, requesters: map[Shard][]identity.Node{}, begun: m.now,
		repeatAt: m.now + m.cfg.RetryInterval, deadline: m.now + m.cfg.HandOffTimeout,
	}
	for _, s := range shards {
		m.moving[s] = h
		delete(m.unstarted, s)
		delete(m.departed, s)
	}
	// Removed nodes send nothing.
	h.waiting = slices.DeleteFunc(m.state.nodes(), func(n identity.Node) bool { return m.member(n) == nil })
	m.handOffs = append(m.handOffs, h)
	m.handedOff += len(shards)
	m.note(Note{Kind: HandOffBegun, Shards: shards, Count: len(h.waiting)})
	if m.cfg.HandOffAtOnce {
		for _, n := range h.waiting {
			m.sendShards(n, BeginHandOff, h.round, h.shards)
		}
		h.waiting = nil
	}
	m.sendRound(h)
}

// sendRound sends the messages whose answers the round waits for.
func (m *Machine) sendRound(h *handOff) {
	if len(h.waiting) == 0 {
		h.stopping = true
	}
	if !h.stopping {
		for _, n := range h.waiting {
			m.sendShards(n, BeginHandOff, h.round, h.shards)
		}
		return
	}
	for _, home := range m.byHome(h.shards) {
		m.sendShards(home.Node, HandOff, h.round, home.Shards)
	}
}

func (m *Machine) handOffAcked(from identity.Node, round uint64) bool {
	if m.cfg.HandOffAtOnce {
		return true
	}
	i := slices.IndexFunc(m.handOffs, func(h *handOff) bool { return h.round == round })
	if i < 0 || !has(m.handOffs[i].waiting, from) {
		return false
	}
	m.ack(m.handOffs[i], from)
	return true
}

// ack records that a region or proxy has stopped sending.
func (m *Machine) ack(h *handOff, n identity.Node) {
	h.waiting = without(h.waiting, n)
	if len(h.waiting) == 0 && !h.stopping {
		h.repeatAt = m.now + m.cfg.RetryInterval
		m.sendRound(h)
	}
}

// ackAll records for all hand-offs that a removed region or proxy has stopped sending.
func (m *Machine) ackAll(n identity.Node) {
	for _, h := range slices.Clone(m.handOffs) {
		if has(h.waiting, n) {
			m.ack(h, n)
		}
	}
}

// shardsStopped requests the deallocation of shards that have stopped. Only the answer to the last
// round counts: an older answer may precede a restart of the shards.
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
	m.removeFinished()
	m.queue = append(m.queue, request{kind: HomesDeallocated, shards: stopped})
	return true
}

func (m *Machine) homesDeallocated(before State, shards []Shard) {
	m.note(Note{Kind: HandOffDone, Shards: shards, Count: len(shards)})
	m.loadMoved(shards)
	for _, s := range shards {
		home, _ := before.Home(s)
		m.requestNewHome(s, home)
	}
}

func (m *Machine) dropMoving(h *handOff, s Shard) {
	delete(m.moving, s)
	if i := slices.Index(h.shards, s); i >= 0 {
		h.shards = slices.Delete(slices.Clone(h.shards), i, i+1)
	}
	m.removeFinished()
}

func (m *Machine) removeFinished() {
	m.handOffs = slices.DeleteFunc(m.handOffs, func(h *handOff) bool { return len(h.shards) == 0 })
}

func (m *Machine) tickHandOffs() {
	for _, h := range slices.Clone(m.handOffs) {
		if m.now >= h.deadline {
			m.giveUp(h)
		} else if m.now >= h.repeatAt {
			h.repeatAt = m.now + m.cfg.RetryInterval
			m.sendRound(h)
		}
	}
}

// giveUp leaves shards where they are. Their home may have stopped them, or may not have started
// them yet, so the home receives Host again. A leaving region repeats its request.
func (m *Machine) giveUp(h *handOff) {
	left, homes, late := h.shards, m.byHome(h.shards), slices.Clone(h.waiting)
	if h.stopping {
		for _, home := range homes {
			late = with(late, home.Node)
		}
	}
	note := Note{Kind: HandOffFailed, Shards: left, Count: len(late)}
	if len(late) > 0 {
		note.Node = late[0]
	}
	m.note(note)
	for _, s := range left {
		m.dropMoving(h, s)
		for _, n := range h.requesters[s] {
			m.getHomes(n, []Shard{s})
		}
	}
	for _, home := range homes {
		if !m.unavailable(home.Node) {
			m.host(home.Node, home.Shards)
		}
	}
}

// homeList groups shards by node, in the order in which the nodes were added first.
type homeList struct {
	list  []Home
	index map[identity.Node]int
}

func (l *homeList) add(n identity.Node, s Shard) {
	i, found := l.index[n]
	if !found {
		if l.index == nil {
			l.index = map[identity.Node]int{}
		}
		i = len(l.list)
		l.index[n], l.list = i, append(l.list, Home{Node: n})
	}
	l.list[i].Shards = append(l.list[i].Shards, s)
}

func (m *Machine) byHome(shards []Shard) []Home {
	var homes homeList
	for _, s := range shards {
		if home, found := m.state.Home(s); found {
			homes.add(home, s)
		}
	}
	return homes.list
}

// Move is a shard that changes its home.
type Move struct {
	Shard Shard
	Step  MoveStep
	// From is the home that the shard leaves, or a terminated one that has lost it.
	From identity.Node
	// To is the next home. Until the strategy has chosen it, To is the node that the shard is pinned
	// to, or the zero Node.
	To identity.Node
	// Since is the time at which the hand-off has begun, or the home has terminated.
	Since time.Duration
}

// MoveStep is the progress of a Move.
type MoveStep uint8

// The steps, in their order.
const (
	MoveStopping   MoveStep = iota // the home stops the shard
	MoveAllocating                 // the shard has no home
	MoveStarting                   // the next home starts the shard
)

func (s MoveStep) String() string { return enum.Name(s, "step", "stopping", "allocating", "starting") }

// departure is a shard that has lost its home and has not started on another one.
type departure struct {
	from  identity.Node
	since time.Duration
}

// Moves returns the shards that change their homes, the longest move first. A shard that had no home
// before, or that starts after a change of the coordinator, is not one of them.
func (m *Machine) Moves() []Move {
	moves := make([]Move, 0, len(m.moving)+len(m.departed))
	add := func(x Move, home identity.Node) {
		if x.To = home; home.IsZero() {
			x.To, _ = m.pinnedHome(x.Shard)
		}
		moves = append(moves, x)
	}
	for s, h := range m.moving {
		home, _ := m.state.Home(s)
		add(Move{Shard: s, Step: MoveStopping, From: home, Since: h.begun}, identity.Node{})
	}
	for s, d := range m.departed {
		x := Move{Shard: s, Step: MoveAllocating, From: d.from, Since: d.since}
		home, found := m.state.Home(s)
		if found {
			x.Step = MoveStarting
		}
		add(x, home)
	}
	slices.SortFunc(moves, func(a, b Move) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Shard, b.Shard)) })
	return moves
}

func (m *Machine) askRebalance() {
	m.movePinned()
	if m.phase != Active || m.rebalanceCall != 0 || m.clusterIsStopping() || len(m.state.regions) == 0 {
		return
	}
	m.rebalanceCall = m.id()
	m.out.Rebalance = &AskRebalance{ID: m.rebalanceCall, View: m.strategyView()}
}

func (m *Machine) rebalanced(in Rebalanced) {
	if in.ID != m.rebalanceCall || in.ID == 0 {
		return
	}
	m.rebalanceCall = 0
	if m.phase == Active && !m.clusterIsStopping() {
		m.beginHandOff(slices.DeleteFunc(slices.Clone(in.Shards), func(s Shard) bool { return m.isStarting(s) || m.isPinned(s) }))
	}
}
