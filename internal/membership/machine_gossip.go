// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"github.com/refold-io/refold/identity"
)

// smallCluster is the number of members up to which a whole state is sent at once
// to whom it may be news. In larger ones it is worth asking first.
const smallCluster = 32

// gossipRound gossips with one other member, and once or twice more before the
// next round if few have seen the last change.
func (m *Machine) gossipRound() {
	m.probe()
	m.gossipWithOne()
	if m.hurry() {
		m.soon(timerGossipTwice, m.now+m.s.GossipInterval/3)
		m.timers[timerGossipThrice] = m.now + 2*m.s.GossipInterval/3
	}
}

// speedUp is an additional round.
func (m *Machine) speedUp() {
	if m.phase == member && (m.hurry() || m.rush()) {
		m.gossipWithOne()
		m.rushOn()
	}
}

// hurry reports whether the last change has to get around.
func (m *Machine) hurry() bool {
	return m.cache.anyDown || m.gossip.seen.count() < len(m.gossip.Members())/2
}

func (m *Machine) gossipWithOne() {
	if n := m.target(); !n.IsZero() {
		m.gossipWith(n)
	}
}

// gossipWith tells a member what this node knows. It is told only which version
// it is if it is likely to have the same, or if it would be much.
func (m *Machine) gossipWith(n identity.Node) {
	if m.gossip.HasSeen(n) || len(m.gossip.members) > smallCluster {
		m.sendDigests(n)
		return
	}
	m.sendState(n)
}

// target chooses whom to gossip with: any other member that this node itself
// does not find unreachable, with preference for those that have not seen the last
// change.
func (m *Machine) target() identity.Node {
	all := m.candidates()
	n := all.count()
	if n == 0 {
		return identity.Node{}
	}
	if m.rand.Float64() < m.s.differentView(len(m.gossip.members)) {
		behind := append(bitmap(nil), all...)
		for i, word := range m.gossip.seen {
			behind[i] &^= word
		}
		if k := behind.count(); k > 0 {
			return m.gossip.members[behind.nth(m.rand.IntN(k))].Node
		}
	}
	return m.gossip.members[all.nth(m.rand.IntN(n))].Node
}

func (m *Machine) candidates() bitmap {
	if m.cache.candidates == nil {
		members := m.gossip.Members()
		all := full(len(members))
		clear := func(n identity.Node) {
			if i, found := findMember(members, n); found {
				all[i/64] &^= 1 << (i % 64)
			}
		}
		clear(m.self)
		m.gossip.Reachability().of(m.self, func(rec Record) { clear(rec.Subject) })
		for n := range m.confirmed { // the order does not show
			clear(n)
		}
		m.cache.candidates = all
	}
	return m.cache.candidates
}

// gossipWithSome gossips with up to n others at random. Those that exit come last: they know
// what there is to know, or others will tell them.
func (m *Machine) gossipWithSome(n int) {
	var some, exiting []identity.Node
	all := m.candidates()
	for _, j := range m.rand.Perm(all.count()) {
		if o := m.gossip.members[all.nth(j)]; o.Status == Exiting {
			exiting = append(exiting, o.Node)
		} else {
			some = append(some, o.Node)
		}
	}
	some = append(some, exiting...)
	for _, o := range some[:min(n, len(some))] {
		m.sendState(o)
	}
}

// digests compares versions by what stands for them.
func (m *Machine) digests(from identity.Node, msg Digests) {
	if msg.Version != m.digest() {
		m.sendVersions(from)
		return
	}
	m.proved(from)
	if msg.Seen != (Digest{}) && msg.Seen != m.gossip.SeenDigest() {
		m.sendSeen(from)
	}
}

// versions compares versions by their clocks.
func (m *Machine) versions(from identity.Node, msg Versions) {
	order := msg.Clock.Compare(m.gossip.Clock())
	switch order {
	case Same:
		if msg.Seen != (Digest{}) && msg.Seen != m.gossip.SeenDigest() {
			m.sendSeen(from)
		}
	case After:
		m.sendVersions(from) // which asks for the state
	case Before, Concurrent:
		m.sendState(from)
	}
	if order == Same || order == Before {
		m.proved(from)
	}
}

// seen adds who has seen the version that both have.
func (m *Machine) seen(from identity.Node, msg Seen) {
	if msg.Version != m.digest() {
		m.sendVersions(from)
		return
	}
	seen, err := readSeen(msg.seen, len(m.gossip.Members()))
	if err != nil {
		m.drop(DropMalformed)
		return
	}
	m.same(from, seen)
}

// same handles a gossip with the same version.
func (m *Machine) same(from identity.Node, seen bitmap) {
	m.count.Gossip[Same]++
	members := m.gossip.Members()
	me, _ := findMember(members, m.self)
	next := m.gossip
	next.seen = next.seen.union(seen, len(members))
	m.adopt(next)
	m.proved(from)
	if !seen.has(me) && !m.exiting {
		m.sendSeen(from)
	}
}

// state handles a whole gossip.
func (m *Machine) state(in Received, msg State) {
	from := in.From
	if in.age(m.now) > m.s.GossipTimeToLive {
		m.drop(DropExpired)
		return
	}
	if msg.Version == m.digest() {
		m.seen(from, Seen{msg.Version, msg.seen})
		return
	}
	remote, err := msg.Gossip(m.gossip)
	if err != nil {
		m.drop(DropMalformed)
		m.log(Warn, "a gossip can't be read", Attr{"from", from}, Attr{"error", err})
		return
	}
	me, known := findMember(remote.Members(), m.self)
	if !known {
		m.drop(DropUnknown)
		return
	}
	order := remote.Clock().Compare(m.gossip.Clock())
	if order == Same { // the digest was not that of the clock
		m.drop(DropMalformed)
		return
	}
	m.count.Gossip[order]++
	switch order {
	case Before:
		m.sendState(from)
	case After:
		m.adopt(remote)
		if len(msg.Content) > 0 && m.gossip.content == remote.content {
			m.cache.body = msg.Content
		}
		if !remote.seen.has(me) && !m.exiting {
			m.sendSeen(from)
		}
	case Concurrent:
		merged, tick := m.gossip.Merge(remote)
		if tick {
			merged = merged.Ticked(m.self)
		}
		m.adopt(merged)
		m.sendState(from)
	case Same:
	}
	m.proved(from)
}

// spread tells a node at once that it was marked as down, so that it stops.
func (m *Machine) spread(down identity.Node) {
	if down != m.self {
		m.sendState(down)
	}
}

// age is how long ago a message arrived.
func (in *Received) age(now time.Duration) time.Duration {
	if in.Arrived == 0 {
		return 0
	}
	return now - in.Arrived
}
