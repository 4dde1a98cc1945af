// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link

import "github.com/refold-io/refold/identity"

// noRoom returns why a frame can't be taken, or 0.
func (m *Machine) noRoom(in *incoming, lane Lane, size int) Reason {
	switch {
	case in.held+size > m.cfg.Window:
		return OverCredit
	case m.held[lane]+size > m.cfg.MaxHeldAll:
		return Overload
	}
	return 0
}

// hold notes that a message, or a part of one, is kept until it is consumed.
func (m *Machine) hold(in *incoming, lane Lane, cost int) {
	in.held += cost
	m.held[lane] += cost
}

// giveUp drops what can't be completed any more.
func (m *Machine) giveUp(lane Lane, in *incoming) {
	if p := in.partial; p != nil {
		m.held[lane] -= p.cost
		in.giveUp()
		m.drop(Incomplete, 1)
	}
}

// Consume gives back the cost of messages that were handled.
func (m *Machine) Consume(from identity.Node, lane Lane, cost int) {
	m.held[lane] -= min(m.held[lane], cost) // also of peers that were forgotten: it was in memory
	p := m.peers[from]
	if p == nil {
		return
	}
	in := &p.in[lane]
	in.held -= min(in.held, cost)
	m.regain(p, lane)
}

// window returns how much of what a peer has sent on a lane may be unconsumed now:
// less, when there is much of all peers together.
func (m *Machine) window(lane Lane) int {
	if m.held[lane] > m.cfg.MaxHeldAll/2 {
		return min(m.cfg.Window, m.cfg.leastWindow())
	}
	return m.cfg.Window
}

// regain lets a sender go on when it can go a good deal further than it was told.
func (m *Machine) regain(p *peer, lane Lane) {
	in, window := &p.in[lane], m.window(lane)
	if in.limit(window) >= in.told+uint64(window/4) { //nolint:gosec // a size
		m.grant(p, lane)
	}
}

// grant lets the next control frame to a peer carry a grant.
func (m *Machine) grant(p *peer, lane Lane) {
	if lane.Credited() {
		p.in[lane].grantDue = true
		m.wake(&p.out[Control])
	}
}
