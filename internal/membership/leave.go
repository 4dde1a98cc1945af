// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/refold-io/refold/identity"
)

// A leaving member waits until all members have seen that it leaves, but its process does not wait
// for long. Therefore gossip is faster while members leave, and the leader acts as soon as the
// members agree. If many members leave one after another, each change would restart this wait.
// Therefore a member that wants to leave lets earlier members finish first, and then leaves
// together with all others that have waited.

const (
	// rushMembers is the number of members up to which gossip is faster while some leave.
	rushMembers = 128
	// rushFactor is the factor by which gossip is faster.
	rushFactor = 10
	// leaveWait is how many gossip intervals a node waits for others to leave first.
	leaveWait = 3
	// exitingTold is how many Exiting members receive the state at once.
	exitingTold = 100
)

func (m *Machine) leave(n identity.Node) {
	o := m.find(n)
	switch {
	case o == nil:
		m.log(Warn, "cannot leave: node is not a member", Attr{"member", n})
	case !o.Status.CanBecome(identity.Leaving):
	case o.Node == m.self && m.cache.anyLeaving:
		if m.timers[timerLeave] == Never {
			m.again(timerLeave, leaveWait*m.s.GossipInterval)
		}
	default:
		m.leaveNow(o)
	}
}

func (m *Machine) leaveNow(o *identity.Member) {
	m.log(Info, "member is leaving", Attr{"member", o.Node})
	if m.change(Change{Put: []*identity.Member{withStatus(o, identity.Leaving)}}) {
		m.gossipWithOne()
	}
}

func (m *Machine) leaveAfterOthers() {
	if me := m.me(); me != nil && me.Status.CanBecome(identity.Leaving) {
		m.leaveNow(me)
	}
}

func (m *Machine) handleLeaving() {
	members := m.gossip.Members()
	if m.cache.anyExiting {
		m.gossip.seen.each(func(i int) {
			if o := members[i]; o.Status == identity.Exiting && o.Node != m.self { // this node reports itself when it is ready
				m.confirm(o.Node)
			}
		})
	}
	switch {
	case !m.cache.anyLeaving:
		if m.timers[timerLeave] != Never {
			m.soon(timerLeave, m.now)
		}
		return
	case m.cache.leader == m.self && m.link.state == linkUp && m.gossip.Converged(m.self, m.isConfirmed):
		m.soon(timerLeader, m.now)
	}
	m.scheduleFastRound()
}

// isLeavingFast reports whether members are leaving and some reachable members may not have seen
// the latest state.
func (m *Machine) isLeavingFast() bool {
	if !m.cache.anyLeaving || len(m.gossip.members) > rushMembers {
		return false
	}
	for i, o := range m.gossip.members {
		if !isGone(o.Status) && !m.gossip.seen.has(i) && !m.cache.unreachable.has(i) {
			return true
		}
	}
	return false
}

func (m *Machine) scheduleFastRound() {
	if m.isLeavingFast() {
		m.soon(timerGossipTwice, m.now+m.s.GossipInterval/rushFactor)
	}
}

// exitingDone ends the membership of a node that has left. It informs possible leaders, so that
// they do not wait for this node.
func (m *Machine) exitingDone() {
	me := m.me()
	if m.phase != member || me.Status != identity.Exiting {
		m.log(Warn, "hand-over of singletons is disabled, the node does not exit")
		return
	}
	m.exiting, m.exited = false, true
	m.adopt(m.gossip)
	m.gossipWithSome(lastGossips)
	told := []identity.Node{m.self}
	for i := range 4 { // the next two leaders, and two members that are not leaving
		next := leader(m.gossip.members, m.cache.unreachable, m.self, func(o *identity.Member) bool {
			return !slices.Contains(told, o.Node) && (i < 2 || o.Status == identity.Up)
		})
		if !next.IsZero() {
			m.send(next, ExitingConfirmed{})
			told = append(told, next)
		}
	}
	m.stop(Left)
}

func (m *Machine) exitingConfirmed(from identity.Node) {
	if m.gossip.Member(from) == nil {
		m.drop(DropStranger)
		return
	}
	m.confirm(from)
}

// confirm records that a member is ready to be removed. Convergence does not wait for this member,
// and the member receives no gossip.
func (m *Machine) confirm(n identity.Node) {
	if !m.confirmed[n] {
		m.confirmed[n] = true
		m.cache.candidates = nil
	}
}

const (
	// lastGossips is how many members receive the state before a node stops.
	lastGossips = 5
	// downTicks is how many leader intervals a node that is Down waits until the other Down members
	// have seen the state.
	downTicks = 4
)

// find returns a member by its node, or by its name if the UID is 0.
func (m *Machine) find(n identity.Node) *identity.Member {
	if n.UID != 0 {
		return m.gossip.Member(n)
	}
	named := m.gossip.Named(n.Name)
	if len(named) == 0 {
		return nil
	}
	return named[len(named)-1]
}

func (m *Machine) down(n identity.Node) {
	o := m.find(n)
	if o == nil {
		m.log(Warn, "cannot down: node is not a member", Attr{"member", n})
	} else if o.Status.CanBecome(identity.Down) {
		m.log(Warn, "member is downed", Attr{"member", o.Node}, Attr{"was", o.Status.String()})
		if m.change(Change{Put: []*identity.Member{withStatus(o, identity.Down)}}) && o.Node != m.self {
			m.sendState(o.Node) // so that it stops
		}
	}
}

func (m *Machine) prepare() {
	var c Change
	for _, o := range m.gossip.Members() {
		if o.Status == identity.Up {
			c.Put = append(c.Put, withStatus(o, identity.PreparingForShutdown))
		}
	}
	if m.phase == member && m.change(c) {
		m.log(Info, "cluster is preparing for shutdown")
		m.gossipWithOne()
	}
}

// stopIfDown stops a node that is Down when the other Down members have seen the state, or after a
// while.
func (m *Machine) stopIfDown() {
	if me := m.me(); me == nil || me.Status != identity.Down {
		return
	}
	know := true
	for i, o := range m.gossip.Members() {
		know = know && (o.Status != identity.Down || m.cache.unreachable.has(i) || m.gossip.seen.has(i))
	}
	if !know && m.downTicks < downTicks {
		m.downTicks++
		return
	}
	m.gossipWithSome(lastGossips)
	m.stop(WasDowned)
}
