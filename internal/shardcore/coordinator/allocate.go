// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// maxAsked is how many shards the strategy is asked for at once.
const maxAsked = 1000

// getHomes answers where shards are. Those without a home get one, and the answer waits for it, and
// for shards that are being moved.
func (m *Machine) getHomes(from identity.Node, shards []Shard) {
	if !m.knows(from) {
		return // it would not hear that a shard is moved
	}
	byRegion := map[identity.Node][]Shard{}
	var nodes []identity.Node
	for _, s := range shards {
		home, found := m.state.Home(s)
		switch {
		case int(s) >= m.cfg.Shards:
			m.note(Note{Kind: Ignored, Node: from, Message: GetHomes, Shards: []Shard{s}})
		case m.moving[s] != nil:
			m.moving[s].askers[s] = with(m.moving[s].askers[s], from)
		case m.phase < Active:
			m.want(s, from, true)
		case found && (m.isTerminating(home) || m.instances[home] == 0):
			// It asks again. A home that has not registered with this coordinator may have stopped, and the one before has not stored that.
		case found:
			if byRegion[home] == nil {
				nodes = append(nodes, home)
			}
			byRegion[home] = append(byRegion[home], s)
		default:
			m.want(s, from, true)
		}
	}
	homes := make([]Home, 0, len(nodes))
	for _, n := range nodes {
		homes = append(homes, Home{n, byRegion[n]})
	}
	m.sendHomes(from, homes)
}

// want asks for a home for a shard, which is remembered before if it is new.
func (m *Machine) want(s Shard, by identity.Node, asks bool) {
	if int(s) < m.cfg.Shards { // there were more once
		m.wants.add(s, by, asks, !m.cfg.Remember || m.remembered[s])
	}
}

// homeless gives a shard a home that has none any more, and whoever asked meanwhile an
// answer.
func (m *Machine) homeless(s Shard) {
	var askers []identity.Node
	if h := m.moving[s]; h != nil {
		askers = h.askers[s]
		m.dropMoving(h, s)
	}
	for _, n := range askers {
		m.want(s, n, true)
	}
	if stopFor := m.stopFor[s]; len(stopFor) > 0 {
		delete(m.stopFor, s)
		for _, n := range stopFor {
			m.sendShards(n, Stopped, m.round, []Shard{s})
		}
		return // it is not needed
	}
	if m.preparing() {
		return // before somebody asks: where it went would stop soon
	}
	m.want(s, m.cfg.Self, false)
}

// ready reports whether shards are allocated: when enough regions have come.
func (m *Machine) ready() bool {
	m.enough = m.enough || len(m.alive) >= m.cfg.MinRegions
	return m.phase == Active && m.enough
}

// strategyView is what a strategy decides upon.
func (m *Machine) strategyView() allocation.View {
	regions := slices.Clone(m.next().regions)
	regions = slices.DeleteFunc(regions, func(r allocation.Region) bool { return m.unavailable(r.Node) })
	return allocation.View{Regions: regions, Moving: m.Moving(), Members: m.view.Members, Unreachable: m.view.Unreachable, Role: m.cfg.Role}
}

// askHomes asks the strategy for the shards that need a home.
func (m *Machine) askHomes() {
	if !m.ready() {
		return
	}
	if m.adding.id == 0 && m.adding.retryAt == Never {
		if shards := m.wants.collect(&m.wants.unknown, unknown, len(m.wants.unknown)); len(shards) > 0 {
			m.remember(shards)
		}
	}
	if m.ask.id != 0 {
		return
	}
	if len(m.wants.waiting) == 0 {
		m.probe = probe{}
		return
	}
	if len(m.probe.waiting) > 0 {
		return // a view of all regions would be made for each answer of one
	}
	view := m.strategyView()
	if len(view.Regions) == 0 || !m.probed(&view) {
		return
	}
	view = m.present(view)
	m.ask.shards = m.wants.collect(&m.wants.waiting, waiting, maxAsked)
	if len(m.ask.shards) == 0 {
		return
	}
	m.ask.id = m.id()
	requests := make([]allocation.Request, len(m.ask.shards))
	for i, s := range m.ask.shards {
		requests[i] = allocation.Request{Shard: s, Requester: m.wants.by[s].requester}
	}
	m.out.Ask = &AskStrategy{ID: m.ask.id, Requests: requests, View: view}
}

// remember adds shards to those that are remembered. They get no home before.
func (m *Machine) remember(shards []Shard) {
	m.adding = adding{id: m.id(), shards: shards, retryAt: Never}
	m.out.AddShards = &AddShards{ID: m.adding.id, Shards: shards}
}

func (m *Machine) tickWants() {
	if m.now >= m.wants.wakeAt {
		m.wants.wake()
	}
	if m.now >= m.adding.retryAt {
		m.remember(m.adding.shards)
	}
}

func (m *Machine) shardsAdded(in ShardsAdded) {
	if in.ID != m.adding.id || in.ID == 0 {
		return
	}
	if in.Failed {
		m.adding.id, m.adding.retryAt = 0, m.now+m.cfg.StoreRetry
		m.note(Note{Kind: SaveRetried, Shards: m.adding.shards})
		return
	}
	for _, s := range m.adding.shards {
		m.remembered[s] = true
	}
	m.wants.remembered(m.adding.shards)
	m.adding = adding{retryAt: Never}
}

// placed takes the answer of the strategy.
func (m *Machine) placed(in Placed) {
	if in.ID != m.ask.id || in.ID == 0 {
		return
	}
	m.ask.id = answered
	r := request{kind: HomesAllocated}
	var none []Shard
	next := m.next()
	for i, s := range m.ask.shards {
		n := identity.Node{}
		if i < len(in.Homes) {
			n = in.Homes[i]
		}
		if _, known := next.Region(n); !known || m.unavailable(n) {
			none = append(none, s)
			continue
		}
		r.shards, r.homes = append(r.shards, s), append(r.homes, n)
	}
	if len(none) > 0 {
		m.note(Note{Kind: Unplaced, Shards: none, Count: len(none)})
		m.wants.postpone(none, m.now+m.cfg.RetryInterval)
	}
	if len(r.shards) == 0 {
		m.ask = asking{}
		return
	}
	m.queue = append(m.queue, r)
}

// homesAllocated tells the region and those that asked.
func (m *Machine) homesAllocated(n identity.Node, shards []Shard) {
	byAsker := map[identity.Node][]Shard{}
	var askers []identity.Node
	for _, s := range shards {
		for _, asker := range m.wants.take(s) {
			if asker == n {
				continue
			}
			if byAsker[asker] == nil {
				askers = append(askers, asker)
			}
			byAsker[asker] = append(byAsker[asker], s)
		}
	}
	if m.isTerminating(n) {
		return // they get another home soon
	}
	if has(m.leaving, n) { // they are being moved
		for _, asker := range askers {
			m.getHomes(asker, byAsker[asker])
		}
		return
	}
	m.host(n, shards)
	for _, asker := range askers {
		m.sendHomes(asker, []Home{{n, byAsker[asker]}})
	}
}

// host tells a region to start shards, again and again until it has. One that has not registered with this
// coordinator is told when it does.
func (m *Machine) host(n identity.Node, shards []Shard) {
	if len(shards) == 0 || m.instances[n] == 0 {
		return
	}
	h := hosting{due: m.now + m.cfg.StartTimeout, node: n, round: m.nextRound(), shards: shards}
	for _, s := range shards {
		m.unstarted[s] = h.round
	}
	m.hosting = append(m.hosting, h)
	m.sendShards(n, Host, h.round, shards)
}

func (m *Machine) hosted(from identity.Node, msg Message) {
	for _, s := range msg.Shards {
		if home, _ := m.state.Home(s); home == from && m.unstarted[s] == msg.Round {
			delete(m.unstarted, s)
		}
	}
}

func (m *Machine) tickHosting() {
	for len(m.hosting) > 0 && m.now >= m.hosting[0].due {
		h := m.hosting[0]
		m.hosting = m.hosting[1:]
		h.shards = slices.DeleteFunc(slices.Clone(h.shards), func(s Shard) bool {
			home, _ := m.state.Home(s)
			return home != h.node || m.unstarted[s] != h.round || m.moving[s] != nil
		})
		if len(h.shards) > 0 && !m.isTerminating(h.node) {
			h.due = m.now + m.cfg.StartTimeout
			m.hosting = append(m.hosting, h)
			m.sendShards(h.node, Host, h.round, h.shards)
		}
	}
}

// stage is how far a shard is on the way to a home.
type stage uint8

const (
	waiting   stage = iota // to be asked for
	unknown                // to be remembered first
	asked                  // the strategy is being asked, or has answered
	postponed              // there was no region
)

// want is a shard that needs a home.
type want struct {
	stage     stage
	requester identity.Node
	askers    []identity.Node // sorted
}

// wants are the shards that need a home. Each list has those of its stage in their order, and may have
// others that are of another stage by now.
type wants struct {
	by        map[Shard]*want
	waiting   []Shard
	unknown   []Shard
	postponed []Shard
	wakeAt    time.Duration // when those that are postponed are tried again
}

// add notes that a shard is needed. Who asks gets an answer.
func (w *wants) add(s Shard, by identity.Node, asks, known bool) {
	at := w.by[s]
	if at == nil {
		at = &want{requester: by}
		w.by[s] = at
		w.file(s, at, known)
	}
	if asks {
		at.askers = with(at.askers, by)
	}
}

// file puts a shard where it is asked for.
func (w *wants) file(s Shard, at *want, known bool) {
	if known {
		at.stage = waiting
		w.waiting = append(w.waiting, s)
		return
	}
	at.stage = unknown
	w.unknown = append(w.unknown, s)
}

// take removes a shard, and returns who has asked for it.
func (w *wants) take(s Shard) []identity.Node {
	at := w.by[s]
	if at == nil {
		return nil
	}
	delete(w.by, s)
	return at.askers
}

// collect takes up to most shards off one of the lists.
func (w *wants) collect(list *[]Shard, of stage, most int) []Shard {
	var found []Shard
	i := 0
	for ; i < len(*list) && len(found) < most; i++ {
		if at := w.by[(*list)[i]]; at != nil && at.stage == of {
			at.stage = asked
			found = append(found, (*list)[i])
		}
	}
	*list = (*list)[i:]
	return found
}

// remembered asks for shards that were not known.
func (w *wants) remembered(shards []Shard) {
	for _, s := range shards {
		if at := w.by[s]; at != nil {
			w.file(s, at, true)
		}
	}
}

// postpone puts shards off for which there was no region.
func (w *wants) postpone(shards []Shard, until time.Duration) {
	for _, s := range shards {
		if at := w.by[s]; at != nil {
			at.stage = postponed
			w.postponed = append(w.postponed, s)
			w.wakeAt = min(w.wakeAt, until)
		}
	}
}

// wake asks for shards again that were put off.
func (w *wants) wake() {
	w.wakeAt = Never
	w.remembered(w.collect(&w.postponed, postponed, len(w.postponed)))
}

// asking is the question to the strategy. There is one at a time, and the next one is asked when the
// answer is being stored: it sees what was decided.
type asking struct {
	id     uint64 // 0 is none
	shards []Shard
}

// answered is the number of a question whose answer is not decided upon yet. No question has it.
const answered = 1<<64 - 1

// adding are shards that are being remembered. They are tried for ever.
type adding struct {
	id      uint64 // 0 is none
	shards  []Shard
	retryAt time.Duration
}

// hosting is a number of shards that a region was told to start.
type hosting struct {
	due    time.Duration
	node   identity.Node
	round  uint64
	shards []Shard
}
