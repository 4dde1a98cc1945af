// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

type load struct {
	id      uint64 // 0: none
	retryAt time.Duration
}

// saving is the change that is being stored. There is at most one such change at a time. The save is repeated until the change is known to be stored. An earlier attempt may succeed at any time, so no other change may replace this one.
type saving struct {
	Save
	tries   int
	checkAt time.Duration // when to check the stored state
	retryAt time.Duration
}

func (m *Machine) startLoad() {
	m.load = load{id: m.id(), retryAt: Never}
	m.out.Load = m.load.id
}

func (m *Machine) loadFailed(id uint64) {
	if id == m.load.id && id != 0 {
		m.load = load{retryAt: m.now + m.cfg.StoreRetry}
		m.note(Note{Kind: LoadRetried})
	}
}

func (m *Machine) tickStore() {
	if m.now >= m.load.retryAt {
		m.startLoad()
	}
	if m.save == nil {
		return
	}
	if m.now >= m.save.checkAt {
		m.save.checkAt = m.now + m.cfg.SaveTimeout
		m.checkStored()
	}
	if m.now >= m.save.retryAt {
		m.askSave()
	}
}

// checkStored loads the state to find out whether the change was stored.
func (m *Machine) checkStored() {
	m.note(Note{Kind: SaveRetried, Count: m.save.tries})
	if m.load.id == 0 && m.load.retryAt == Never {
		m.startLoad()
	}
}

// checkTerm loads the state to find out whether another coordinator has claimed a higher term.
func (m *Machine) checkTerm() {
	if m.now >= m.checkTermAt && m.load.id == 0 && m.load.retryAt == Never {
		m.checkTermAt = m.now + m.cfg.RetryInterval
		m.startLoad()
	}
}

func (m *Machine) loaded(in Loaded) {
	if in.ID != m.load.id || in.ID == 0 {
		return
	}
	m.load = load{retryAt: Never}
	switch {
	case m.phase <= Claiming && (m.save == nil || !in.State.Equal(m.save.After)):
		m.claim(in)
	case in.State.term > m.term, in.State.term == m.term && in.State.holder != m.cfg.Self:
		m.stop(SupersededByTerm)
	case m.save == nil: // the answer to the save arrived first, or checkTerm has loaded the state
	case in.State.Equal(m.save.After):
		m.stored(in.Rev)
	case in.State.Equal(m.state):
		// The change is not stored, or not yet: an earlier attempt may succeed until another change has its number.
		m.save.Rev = in.Rev
		m.retrySave()
	case in.Rev < m.rev:
		m.retrySave() // the store has lost a change that it had acknowledged
	default:
		m.stop(Diverged)
	}
}

func (m *Machine) claim(in Loaded) {
	if in.Repaired > 0 && m.phase == Loading {
		m.note(Note{Kind: Repaired, Count: in.Repaired, Repairs: in.Repairs})
	}
	m.state, m.rev = in.State, in.Rev
	m.remembered = make([]bool, m.cfg.Shards)
	for _, s := range in.Remembered {
		if m.cfg.Remember && int(s) < m.cfg.Shards {
			m.remembered[s] = true
		}
	}
	tries := 0
	if m.save != nil {
		tries = m.save.tries
	}
	m.term = m.state.term + 1
	if m.phase != Claiming {
		m.enterPhase(Claiming)
	}
	m.change([]Event{{Kind: Started, Term: m.term, Node: m.cfg.Self}})
	if m.save != nil && tries > 0 {
		m.out.Save, m.save.tries = nil, tries
		m.retrySave()
	}
}

func (m *Machine) change(events []Event) {
	after, err := m.state.Apply(events...)
	if err != nil { // impossible: the events were derived from the state
		m.stop(Diverged)
		return
	}
	m.save = &saving{Save: Save{ID: m.id(), Change: Change{Term: m.term, Rev: m.rev, Events: events, After: after}}}
	m.askSave()
}

func (m *Machine) askSave() {
	m.save.tries++
	m.save.checkAt, m.save.retryAt = m.now+m.cfg.SaveTimeout, Never
	save := m.save.Save
	m.out.Save = &save
}

// retrySave saves the change again, the first time at once.
func (m *Machine) retrySave() {
	if m.save.tries == 1 {
		m.askSave()
		return
	}
	m.save.retryAt = m.now + m.cfg.StoreRetry
}

func (m *Machine) saveFailed(in SaveFailed) {
	switch {
	case m.save == nil || in.ID != m.save.ID:
	case in.Fenced:
		m.stop(SupersededByTerm)
	default:
		m.checkStored()
	}
}

// stored applies a change that is durable.
func (m *Machine) stored(rev uint64) {
	change := m.save.Change
	m.save, m.load = nil, load{retryAt: Never}
	before := m.state
	m.state, m.rev = change.After, rev
	m.note(Note{Kind: Stored, Count: len(change.Events)})
	for _, e := range change.Events {
		if e.Kind == HomesAllocated && has(m.leaving, e.Node) { // the region began to leave after the decision: no region may send to these shards
			m.beginHandOff(e.Shards)
		}
	}
	for _, e := range change.Events {
		switch e.Kind {
		case Started:
			m.claimed()
		case RegionRegistered:
			m.regionRegistered(e.Node)
		case ProxyRegistered:
			m.proxyRegistered(e.Node)
		case RegionTerminated:
			shards, _ := before.Region(e.Node)
			m.regionTerminated(e.Node, shards)
		case ProxyTerminated:
			m.ackAll(e.Node)
		case HomesAllocated:
			m.homesAllocated(e.Node, e.Shards)
		case HomesDeallocated:
			m.homesDeallocated(before, e.Shards)
		case ShardsPinned, ShardsReleased:
		}
	}
	if slices.ContainsFunc(change.Events, func(e Event) bool { return e.Kind == ShardsPinned }) {
		m.movePinned() // last: shards that another event of the change has allocated are starting
	}
}

func (m *Machine) nextState() State {
	if m.save != nil {
		return m.save.After
	}
	return m.state
}

// request is a request to change the state. Requests that arrive while a change is being stored are
// decided together, in order, and stored as one change.
type request struct {
	kind   EventKind
	node   identity.Node
	shards []Shard
	homes  []Home // used instead of shards for HomesAllocated
}

func (m *Machine) decide() {
	if m.save != nil || len(m.queue) == 0 || m.phase < Settling {
		return
	}
	queue := m.queue
	m.queue = nil
	f := NewFold(m.state)
	var events []Event
	add := func(e Event) bool {
		if f.Apply(e) != nil {
			return false
		}
		events = append(events, e)
		return true
	}
	for _, r := range queue {
		switch r.kind {
		case RegionRegistered, ProxyRegistered:
			if !add(Event{Kind: r.kind, Node: r.node}) {
				m.acknowledge(r.node) // an earlier request has registered it
			}
		case RegionTerminated:
			if !add(Event{Kind: r.kind, Node: r.node}) {
				m.notTerminating(r.node)
			}
		case ProxyTerminated:
			add(Event{Kind: r.kind, Node: r.node})
		case HomesDeallocated:
			add(Event{Kind: r.kind, Shards: f.allocated(r.shards)})
		case HomesAllocated:
			m.decideHomes(r, add)
		case ShardsPinned, ShardsReleased:
			add(Event{Kind: r.kind, Node: r.node, Shards: r.shards})
		case Started:
		}
	}
	events = slices.DeleteFunc(events, func(e Event) bool {
		return len(e.Shards) == 0 && (e.Kind == HomesAllocated || e.Kind == HomesDeallocated)
	})
	if len(events) > 0 {
		m.change(events)
	}
}

func (f *Fold) allocated(shards []Shard) []Shard {
	return slices.DeleteFunc(slices.Clone(shards), func(s Shard) bool {
		_, found := f.state.Home(s)
		return !found
	})
}

func (m *Machine) decideHomes(r request, add func(Event) bool) {
	for _, h := range r.homes {
		if m.unavailable(h.Node) || !add(Event{Kind: HomesAllocated, Node: h.Node, Shards: h.Shards}) {
			m.requests.postpone(h.Shards, m.now)
		}
	}
	m.strategyCall = strategyCall{}
}

// claimed continues after the term is stored: it finds out which regions are still alive.
func (m *Machine) claimed() {
	m.enterPhase(Settling)
	for _, r := range m.state.regions {
		if m.member(r.Node) == nil {
			m.terminateAt(r.Node, m.terminationTime(r.Node))
		} else if len(r.Shards) > 0 {
			m.enoughRegions = true
		}
	}
	for _, n := range m.state.proxies {
		if m.member(n) == nil {
			m.queue = append(m.queue, request{kind: ProxyTerminated, node: n})
		}
	}
	if m.invited = m.state.nodes(); len(m.invited) == 0 {
		m.activate()
		return
	}
	m.settleAt, m.inviteAt = m.now+m.cfg.Settle, m.now
	m.tickInvitations()
}

// activate starts replying to requests. It sends all regions their shards and requests homes for
// pending and remembered shards.
func (m *Machine) activate() {
	m.settleAt, m.rebalanceAt = Never, m.now+m.cfg.RebalanceInterval
	m.enterPhase(Active)
	for _, r := range m.state.regions {
		if !m.isTerminating(r.Node) {
			m.host(r.Node, r.Shards)
		}
	}
	for s := range m.remembered {
		if m.remembered[s] {
			if _, found := m.state.Home(Shard(s)); !found {
				m.requests.add(Shard(s), m.cfg.Self, false, true)
			}
		}
	}
	m.rememberHosted()
	// Requests for shards that have a home are answered now.
	for _, s := range slices.Concat(m.requests.waiting, m.requests.unknown) {
		if _, found := m.state.Home(s); found {
			for _, n := range m.requests.take(s) {
				m.getHomes(n, []Shard{s})
			}
		}
	}
}

// rememberHosted remembers shards that have a home from a time when Remember was off.
func (m *Machine) rememberHosted() {
	if !m.cfg.Remember {
		return
	}
	var shards []Shard
	for s := range m.remembered {
		if _, found := m.state.Home(Shard(s)); found && !m.remembered[s] {
			shards = append(shards, Shard(s))
		}
	}
	if len(shards) > 0 {
		m.remember(shards)
	}
}

// terminate ends the coordinator. If this node has a region, the region is shut down first.
func (m *Machine) terminate(now bool) {
	if _, hosts := m.state.Region(m.cfg.Self); !now && m.phase >= Settling && hosts {
		if m.stopping = true; !m.isTerminating(m.cfg.Self) {
			m.out.ShutDownRegion = true
		}
		return
	}
	m.stop(Terminated)
}
