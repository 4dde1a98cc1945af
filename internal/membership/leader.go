// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

// upTold is how many members receive the state at once when they become Up. Others receive it by
// gossip.
const upTold = 10

func (m *Machine) lead() {
	m.again(timerLeader, m.s.LeaderInterval)
	m.expire()
	switch {
	case m.link.state != linkUp || m.cache.leader != m.self:
		m.attempts = 0
	case m.gossip.Converged(m.self, m.isConfirmed):
		m.leadConverged()
	default:
		m.leadDiverged()
	}
	for n := range m.confirmed { // the order is not observable
		if m.gossip.Member(n) == nil {
			delete(m.confirmed, n)
		}
	}
	if me := m.me(); me.Status == identity.Up && m.cache.closing {
		m.change(Change{Put: []*identity.Member{withStatus(me, identity.PreparingForShutdown)}})
	}
	m.stopIfDown()
}

func (m *Machine) isConfirmed(n identity.Node) bool { return m.confirmed[n] }

func (m *Machine) leadConverged() {
	m.attempts = 0
	c := Change{At: m.wall(), Forget: m.forgetBefore()}
	var exiting, risen []*identity.Member
	losers := duplicates(m.gossip.Members())
	promote := m.enough() && !m.cache.closing
	youngest := int32(0)
	for _, o := range m.gossip.Members() {
		if o.UpNumber != identity.NeverUp {
			youngest = max(youngest, o.UpNumber)
		}
	}
	for i, o := range m.gossip.Members() {
		switch {
		case slices.Contains(losers, o):
			c.Put = append(c.Put, withStatus(o, identity.Down))
		case (o.Status == identity.Joining || o.Status == identity.WeaklyUp) && promote && m.alone(o):
			youngest = min(youngest+1, lastUpNumber)
			next := withStatus(o, identity.Up)
			next.UpNumber = youngest
			c.Put, risen = append(c.Put, next), append(risen, next)
		case o.Status == identity.Leaving:
			next := withStatus(o, identity.Exiting)
			c.Put, exiting = append(c.Put, next), append(exiting, next)
		case o.Status == identity.PreparingForShutdown:
			c.Put = append(c.Put, withStatus(o, identity.ReadyForShutdown))
		case o.Node != m.self && (isGone(o.Status) && m.cache.unreachable.has(i) || o.Status == identity.Exiting && m.confirmed[o.Node]):
			c.Remove = append(c.Remove, o.Node)
		}
	}
	for _, o := range c.Put {
		m.log(Info, "leader: changing the status of a member", Attr{"member", o.Node}, Attr{"status", o.Status.String()})
	}
	for _, n := range c.Remove {
		m.log(Info, "leader: removing a member", Attr{"member", n})
	}
	if !m.change(c) {
		return
	}
	if len(exiting) > 0 {
		m.sendToExiting(exiting)
	}
	for _, o := range risen[:min(upTold, len(risen))] {
		if o.Node != m.self {
			m.sendState(o.Node)
		}
	}
}

// maxTombstoneBytes limits the tombstones of a state, which is sent as one message.
const maxTombstoneBytes = MaxMessage / 4

// forgetBefore returns the time before which the leader removes tombstones: PruneTombstonesAfter ago, or
// later if more of them would not fit.
func (m *Machine) forgetBefore() int64 {
	const overhead = 24 // of a tombstone, without the name
	before := m.wall() - int64(m.s.PruneTombstonesAfter.Seconds())
	all := m.gossip.Tombstones()
	size := 0
	for _, t := range all {
		size += len(t.Node.Name) + overhead
	}
	if size <= maxTombstoneBytes {
		return before
	}
	oldest := slices.SortedFunc(slices.Values(all), func(a, b Tombstone) int { return cmp.Compare(a.At, b.At) })
	for _, t := range oldest {
		if size <= maxTombstoneBytes {
			break
		}
		size -= len(t.Node.Name) + overhead
		before = max(before, t.At+1)
	}
	return before
}

// alone reports whether no other incarnation with a member's name is a member.
func (m *Machine) alone(o *identity.Member) bool { return len(m.gossip.Named(o.Node.Name)) == 1 }

func (m *Machine) enough() bool {
	members := m.gossip.Members()
	if len(members) < m.s.MinMembers {
		return false
	}
	for role, least := range m.s.MinMembersOfRole {
		n := 0
		for _, o := range members {
			if o.HasRole(role) {
				n++
			}
		}
		if n < least {
			return false
		}
	}
	return true
}

// leadDiverged is called while the members do not agree. After a while Joining members become
// WeaklyUp, so that they can do work that needs no agreement.
func (m *Machine) leadDiverged() {
	m.attempts++
	if m.attempts == 20 || m.attempts%60 == 0 {
		var blocking, bad []string
		for _, o := range m.gossip.blocking(m.self, m.isConfirmed, 10) {
			blocking = append(blocking, o.Node.String()+" "+o.Status.String())
		}
		m.gossip.Reachability().EachUnreachable(func(observer identity.Node, rec Record) {
			if len(bad) < 10 {
				bad = append(bad, observer.String()+" finds "+rec.Subject.String()+" "+rec.Reach.String())
			}
		})
		m.log(Warn, "leader: waiting for convergence of the members",
			Attr{"attempts", m.attempts}, Attr{"waits_for", strings.Join(blocking, ", ")}, Attr{"unreachable", strings.Join(bad, ", ")})
	}
	var c Change
	for _, o := range duplicates(m.gossip.Members()) {
		c.Put = append(c.Put, withStatus(o, identity.Down))
	}
	after := m.s.WeaklyUpAfter
	if after >= 0 && m.s.LeaderInterval*time.Duration(m.attempts) >= after && m.enough() && !m.cache.closing {
		for i, o := range m.gossip.Members() {
			if o.Status == identity.Joining && !m.cache.unreachable.has(i) && m.alone(o) {
				m.count.TimedOut[TimeoutConvergence]++
				c.Put = append(c.Put, withStatus(o, identity.WeaklyUp))
			}
		}
	}
	m.change(c)
}

// sendToExiting sends the state at once to Exiting members and to the oldest members. When many
// members leave, there may soon be no member left that could send the state to the Exiting members.
// The oldest members may run singletons that have to be handed over.
func (m *Machine) sendToExiting(exiting []*identity.Member) {
	told := []identity.Node{m.self}
	for _, o := range exiting {
		if len(told) <= exitingTold && o.Node != m.self {
			told = append(told, o.Node)
			m.sendState(o.Node)
		}
	}
	tell := func(role string) {
		byAge := slices.DeleteFunc(slices.Clone(m.gossip.Members()), func(o *identity.Member) bool { return !o.HasRole(role) || o.Node == m.self })
		slices.SortFunc(byAge, CompareAge)
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

// unreachable returns the members that at least one observer finds unreachable or terminated.
// Observers for which ignored returns true do not count; nil ignores none.
func (g Gossip) unreachable(ignored func(*identity.Member) bool) bitmap {
	c := g.state()
	var found bitmap
	for _, o := range c.reach.Observers {
		if len(o.Records) == 0 {
			continue
		}
		if ignored != nil {
			if i, member := findMember(c.members, o.Node); member && ignored(c.members[i]) {
				continue
			}
		}
		for _, rec := range o.Records {
			if rec.Reach == Reachable {
				continue
			}
			if i, member := findMember(c.members, rec.Subject); member {
				if found == nil {
					found = newBitmap(len(c.members))
				}
				found.set(i)
			}
		}
	}
	return found
}

// Converged reports whether the members agree on this state, in the view of self: all unreachable
// members are Down or Exiting, and all members that are Up, Leaving or about to shut down have seen
// this state. If there are no such members, the Joining and WeaklyUp members must have seen it.
// Members for which confirmed returns true do not count, because they are ready to be removed. A
// nil confirmed ignores no member.
func (g Gossip) Converged(self identity.Node, confirmed func(identity.Node) bool) bool {
	return len(g.blocking(self, confirmed, 1)) == 0
}

func (g Gossip) blocking(self identity.Node, confirmed func(identity.Node) bool, most int) []*identity.Member {
	var found []*identity.Member
	block := func(m *identity.Member) bool {
		if len(found) < most && (confirmed == nil || !confirmed(m.Node)) {
			found = append(found, m)
		}
		return len(found) < most
	}
	members := g.Members()
	if !g.Reachability().AllReachable() {
		g.unreachable(func(observer *identity.Member) bool { return observer.Status == identity.Down }).each(func(i int) {
			if m := members[i]; m.Node != self && !isGone(m.Status) {
				block(m)
			}
		})
	}
	settled := false
	for i, m := range members {
		if !countsForConvergence(m.Status) {
			continue
		}
		settled = true
		if !g.seen.has(i) && !block(m) {
			return found
		}
	}
	if settled {
		return found
	}
	for i, m := range members {
		if !isGone(m.Status) && !g.seen.has(i) && !block(m) {
			return found
		}
	}
	return found
}

// leader returns the leader in the view of self. Only eligible members that are reachable or self
// can lead. The leader is the first member that is Up, Leaving or about to shut down. If there is
// no such member, the leader is the first member with the lowest substituteRank. If no member can
// lead, the result is the zero node.
func leader(members []*identity.Member, unreachable bitmap, self identity.Node, eligible func(*identity.Member) bool) identity.Node {
	var best *identity.Member
	for i, m := range members {
		if m.Status == identity.Down || unreachable.has(i) && m.Node != self || !eligible(m) {
			continue
		}
		if countsForConvergence(m.Status) {
			return m.Node
		}
		if best == nil || cmp.Compare(substituteRank(m.Status), substituteRank(best.Status)) < 0 {
			best = m
		}
	}
	if best == nil {
		return identity.Node{}
	}
	return best.Node
}

// substituteRank orders the statuses of members that lead only if no member is Up, Leaving or about
// to shut down. The lowest leads.
func substituteRank(s identity.Status) int {
	return slices.Index([]identity.Status{identity.WeaklyUp, identity.Joining, identity.Exiting}, s)
}
