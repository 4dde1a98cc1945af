// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import "slices"

// claimed goes on when the term is stored: it finds out which regions are still
// there.
func (m *Machine) claimed() {
	m.become(Settling)
	for _, r := range m.state.regions {
		if m.member(r.Node) == nil {
			m.expect(r.Node, m.goneAt(r.Node))
		} else if len(r.Shards) > 0 {
			m.enough = true
		}
	}
	for _, n := range m.state.proxies {
		if m.member(n) == nil {
			m.queue = append(m.queue, request{kind: ProxyTerminated, node: n})
		}
	}
	if len(m.state.regions) == 0 && len(m.state.proxies) == 0 {
		m.activate()
		return
	}
	m.settleAt = m.now + m.cfg.Settle
	for _, r := range m.state.regions {
		m.invited = with(m.invited, r.Node)
	}
	for _, n := range m.state.proxies {
		m.invited = with(m.invited, n)
	}
	m.inviteAt = m.now
	m.tickInvitations()
}

// activate begins to answer: it tells all regions what they host, and gives what was asked for
// meanwhile, and what is remembered, a home.
func (m *Machine) activate() {
	m.settleAt, m.rebalanceAt = Never, m.now+m.cfg.RebalanceInterval
	m.become(Active)
	for _, r := range m.state.regions {
		if !m.isTerminating(r.Node) {
			m.host(r.Node, r.Shards)
		}
	}
	for s := range m.remembered {
		if m.remembered[s] {
			if _, found := m.state.Home(Shard(s)); !found {
				m.wants.add(Shard(s), m.cfg.Self, false, true)
			}
		}
	}
	m.rememberHosted()
	// What has a home is answered.
	for _, s := range slices.Concat(m.wants.waiting, m.wants.unknown) {
		if _, found := m.state.Home(s); found {
			for _, n := range m.wants.take(s) {
				m.getHomes(n, []Shard{s})
			}
		}
	}
}

// rememberHosted adds shards that have a home and are not remembered: they have it from before
// that was switched on.
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

// terminate ends the coordinator, after the region of this node if it has one.
func (m *Machine) terminate(now bool) {
	if _, hosts := m.state.Region(m.cfg.Self); !now && m.phase >= Settling && hosts {
		if m.stopping = true; !m.isTerminating(m.cfg.Self) {
			m.out.ShutDownRegion = true
		}
		return
	}
	m.stop(Terminated)
}
