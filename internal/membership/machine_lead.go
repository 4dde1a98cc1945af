// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
)

// upTold is how many members are told at once that they are Up; others hear it from these.
const upTold = 10

// leading is what a leader remembers.
type leading struct {
	attempts int // without convergence, in a row
}

// lead is what all members do each leader interval.
func (m *Machine) lead() {
	m.expire()
	switch {
	case m.link.state != linkUp || m.cache.leader != m.self:
		m.leading.attempts = 0
	case m.gossip.Converged(m.self, m.isConfirmed):
		m.leadConverged()
	default:
		m.leadDiverged()
	}
	for n := range m.confirmed { // the order does not show
		if m.gossip.Member(n) == nil {
			delete(m.confirmed, n)
		}
	}
	if me := m.me(); me.Status == Up && m.cache.closing {
		m.change(Change{Put: []*Member{withStatus(me, PreparingForShutdown)}})
	}
	m.stopIfDown()
}

func (m *Machine) isConfirmed(n identity.Node) bool { return m.confirmed[n] }

// leadConverged moves members on, now that all agree.
func (m *Machine) leadConverged() {
	m.leading.attempts = 0
	c := Change{At: m.wall(), Forget: m.wall() - int64(m.s.PruneTombstonesAfter.Seconds())}
	var exiting, risen []*Member
	losers := duplicates(m.gossip.Members())
	promote := m.enough() && !m.cache.closing
	youngest := int32(0)
	for _, o := range m.gossip.Members() {
		if o.UpNumber != NeverUp {
			youngest = max(youngest, o.UpNumber)
		}
	}
	for i, o := range m.gossip.Members() {
		switch {
		case slices.Contains(losers, o):
			c.Put = append(c.Put, withStatus(o, Down))
		case (o.Status == Joining || o.Status == WeaklyUp) && promote && m.alone(o):
			youngest++
			next := withStatus(o, Up)
			next.UpNumber = youngest
			c.Put, risen = append(c.Put, next), append(risen, next)
		case o.Status == Leaving:
			next := withStatus(o, Exiting)
			c.Put, exiting = append(c.Put, next), append(exiting, next)
		case o.Status == PreparingForShutdown:
			c.Put = append(c.Put, withStatus(o, ReadyForShutdown))
		case o.Node != m.self && (isGone(o.Status) && m.cache.unreachable.has(i) || o.Status == Exiting && m.confirmed[o.Node]):
			c.Remove = append(c.Remove, o.Node)
		}
	}
	for _, o := range c.Put {
		m.log(Info, "the leader moves a member on", Attr{"member", o.Node}, Attr{"status", o.Status.String()})
	}
	for _, n := range c.Remove {
		m.log(Info, "the leader removes a member", Attr{"member", n})
	}
	if !m.change(c) {
		return
	}
	if len(exiting) > 0 {
		m.tellExiting(exiting)
	}
	for _, o := range risen[:min(upTold, len(risen))] {
		if o.Node != m.self {
			m.sendState(o.Node)
		}
	}
}

// alone reports whether no other incarnation with a member's name is there.
func (m *Machine) alone(o *Member) bool { return len(m.gossip.Named(o.Node.Name)) == 1 }

// enough reports whether there are so many members that they may become Up.
func (m *Machine) enough() bool {
	members := m.gossip.Members()
	if len(members) < m.s.MinMembers {
		return false
	}
	for _, r := range m.minimums {
		n := 0
		for _, o := range members {
			if o.HasRole(r.role) {
				n++
			}
		}
		if n < r.least {
			return false
		}
	}
	return true
}

// leadDiverged is called while the members don't agree. After a while Joining
// members become WeaklyUp, so that they may do what needs no agreement.
func (m *Machine) leadDiverged() {
	m.leading.attempts++
	attempts := m.leading.attempts
	if attempts == 20 || attempts%60 == 0 {
		var blocking, bad []string
		for _, o := range m.gossip.blocking(m.self, m.isConfirmed, 10) {
			blocking = append(blocking, o.Node.String()+" "+o.Status.String())
		}
		m.gossip.Reachability().Bad(func(observer identity.Node, rec Record) {
			if len(bad) < 10 {
				bad = append(bad, observer.String()+" finds "+rec.Subject.String()+" "+rec.Reach.String())
			}
		})
		m.log(Warn, "the leader can't act until all members agree",
			Attr{"attempts", attempts}, Attr{"waits_for", strings.Join(blocking, ", ")}, Attr{"unreachable", strings.Join(bad, ", ")})
	}
	var c Change
	for _, o := range duplicates(m.gossip.Members()) {
		c.Put = append(c.Put, withStatus(o, Down))
	}
	after := m.s.WeaklyUpAfter
	if after >= 0 && m.s.LeaderInterval*durationOf(attempts) >= after && m.enough() && !m.cache.closing {
		for i, o := range m.gossip.Members() {
			if o.Status == Joining && !m.cache.unreachable.has(i) && m.alone(o) {
				m.count.TimedOut[TimeoutConvergence]++
				c.Put = append(c.Put, withStatus(o, WeaklyUp))
			}
		}
	}
	m.change(c)
}

// tellExiting tells members that they exit, for when many do there may soon be nobody who could, and the
// oldest members, for these may host what has to be handed over.
func (m *Machine) tellExiting(exiting []*Member) {
	told := []identity.Node{m.self}
	for _, o := range exiting {
		if len(told) <= exitingTold && o.Node != m.self {
			told = append(told, o.Node)
			m.sendState(o.Node)
		}
	}
	tell := func(role string) {
		byAge := slices.DeleteFunc(slices.Clone(m.gossip.Members()), func(o *Member) bool { return !o.HasRole(role) || o.Node == m.self })
		slices.SortFunc(byAge, compareAge)
		for _, o := range byAge[:min(2, len(byAge))] {
			if !slices.Contains(told, o.Node) {
				told = append(told, o.Node)
				m.sendState(o.Node)
			}
		}
	}
	tell("")
	for _, role := range roles(exiting) {
		tell(role)
	}
}
