// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// lastGossips is how many members are told before a node stops.
	lastGossips = 5
	// downTicks is how many times a node that is Down waits for all to know.
	downTicks = 4
)

func durationOf(n int) time.Duration { return time.Duration(n) }

// find returns a member by its node, or by its name if the UID is 0.
func (m *Machine) find(n identity.Node) *Member {
	if n.UID != 0 {
		return m.gossip.Member(n)
	}
	named := m.gossip.Named(n.Name)
	if len(named) == 0 {
		return nil
	}
	return named[len(named)-1]
}

// down marks a member as down.
func (m *Machine) down(n identity.Node) {
	o := m.find(n)
	switch {
	case o == nil:
		m.log(Warn, "who is to be marked as down is no member", Attr{"member", n})
	case o.Status.CanBecome(Down):
		m.log(Warn, "a member is marked as down", Attr{"member", o.Node}, Attr{"was", o.Status.String()})
		if m.change(Change{Put: []*Member{withStatus(o, Down)}}) {
			m.spread(o.Node)
		}
	}
}

// prepare announces that the whole cluster is going to stop.
func (m *Machine) prepare() {
	var c Change
	for _, o := range m.gossip.Members() {
		if o.Status == Up {
			c.Put = append(c.Put, withStatus(o, PreparingForShutdown))
		}
	}
	if m.phase == member && m.change(c) {
		m.log(Info, "the cluster prepares for its shutdown")
		m.gossipWithOne()
	}
}

// stopIfDown stops a node that was given up, once those that were given up with
// it know, or after a while.
func (m *Machine) stopIfDown() {
	if me := m.me(); me == nil || me.Status != Down {
		return
	}
	know := true
	for i, o := range m.gossip.Members() {
		know = know && (o.Status != Down || m.cache.unreachable.has(i) || m.gossip.seen.has(i))
	}
	if !know && m.downTicks < downTicks {
		m.downTicks++
		return
	}
	m.gossipWithSome(lastGossips)
	m.stop(WasDowned)
}
