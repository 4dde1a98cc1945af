// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/refold-io/refold/identity"
)

// smallCluster is the number of members up to which a whole state is sent at once to a member that
// may not have it. In larger clusters the versions are compared first.
const smallCluster = 32

// gossipRound gossips with one other member. If few members have seen the last change, it schedules
// up to two more exchanges before the next round.
func (m *Machine) gossipRound() {
	m.again(timerGossip, m.s.GossipInterval)
	if m.isForgotten() {
		m.log(Warn, "no member knows this node, which leaves before it was Up", Attr{"for", m.now - m.known})
		m.stop(Left)
		return
	}
	m.probe()
	m.gossipWithOne()
	if m.hurry() {
		m.soon(timerGossipTwice, m.now+m.s.GossipInterval/3)
		m.timers[timerGossipThrice] = m.now + 2*m.s.GossipInterval/3
	}
}

func (m *Machine) speedUp() {
	if m.phase == member && (m.hurry() || m.isLeavingFast()) {
		m.gossipWithOne()
		m.scheduleFastRound()
	}
}

func (m *Machine) hurry() bool {
	return m.cache.anyDown || m.gossip.seen.count() < len(m.gossip.Members())/2
}

func (m *Machine) gossipWithOne() {
	if n := m.target(); !n.IsZero() {
		m.gossipWith(n)
	}
}

// gossipWith sends the state of this node to a member. It sends only a digest if the member
// probably has the same state or the state is large.
func (m *Machine) gossipWith(n identity.Node) {
	if m.gossip.HasSeen(n) || len(m.gossip.members) > smallCluster {
		m.sendDigests(n)
		return
	}
	m.sendState(n)
}

// target chooses a member for gossip among the members that this node does not find unreachable
// itself. A member that has not seen the last change is preferred.
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
		for n := range m.confirmed { // the order is not observable
			clear(n)
		}
		m.cache.candidates = all
	}
	return m.cache.candidates
}

// gossipWithSome gossips with up to n random members. Exiting members come last: they have the
// state, or receive it from others.
func (m *Machine) gossipWithSome(n int) {
	var some, exiting []identity.Node
	all := m.candidates()
	for _, j := range m.rand.Perm(all.count()) {
		if o := m.gossip.members[all.nth(j)]; o.Status == identity.Exiting {
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

func (m *Machine) digests(from identity.Node, msg Digests) {
	if msg.Version != m.digest() {
		m.sendVersions(from)
		return
	}
	m.confirmedBy(from)
	if msg.Seen != (Digest{}) && msg.Seen != m.gossip.SeenDigest() {
		m.sendSeenSet(from)
	}
}

func (m *Machine) versions(from identity.Node, msg Versions) {
	order := msg.Clock.Compare(m.gossip.Clock())
	switch order {
	case Same:
		if msg.Seen != (Digest{}) && msg.Seen != m.gossip.SeenDigest() {
			m.sendSeenSet(from)
		}
	case After:
		m.sendVersions(from) // which requests the state
	case Before, Concurrent:
		m.sendState(from)
	}
	if order == Same || order == Before {
		m.confirmedBy(from)
	}
}

// seen adds the members that have seen the version that both nodes have.
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

func (m *Machine) same(from identity.Node, seen bitmap) {
	m.count.Gossip[Same]++
	members := m.gossip.Members()
	me, _ := findMember(members, m.self)
	next := m.gossip
	next.seen = next.seen.union(seen, len(members))
	m.adopt(next)
	m.confirmedBy(from)
	if !seen.has(me) && !m.exiting {
		m.sendSeenSet(from)
	}
}

func (m *Machine) state(in Received, msg State) {
	from := in.From
	if in.Arrived > 0 && m.now-in.Arrived > m.s.GossipTimeToLive {
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
		m.logCaused(Warn, "cannot decode gossip", Attr{"from", from}, Attr{"error", err})
		return
	}
	me, known := findMember(remote.Members(), m.self)
	if !known {
		m.drop(DropUnknown)
		return
	}
	if number := m.tooFarAhead(remote); number != "" {
		m.drop(DropAhead)
		m.logCaused(Warn, "gossip with a number that cannot be reached yet", Attr{"from", from}, Attr{"number", number})
		return
	}
	order := remote.Clock().Compare(m.gossip.Clock())
	if order == Same { // the digest did not match the clock
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
			m.sendSeenSet(from)
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
	m.confirmedBy(from)
}

// cache holds values derived from the gossip that are needed often.
type cache struct {
	// Derived from the content:
	of          *content
	digest      Digest
	body        []byte
	unreachable bitmap
	bad         []identity.Node // the unreachable members as nodes
	others      []identity.Node // the unreachable members without self
	leader      identity.Node
	roles       []string
	roleLeaders []identity.Node
	anyDown     bool
	anyLeaving  bool
	anyExiting  bool
	open        bool   // a downing decision about a member that was Up, possibly this node, is pending
	closing     bool   // the whole cluster is about to stop
	candidates  bitmap // members to gossip with
	values      []identity.Member
	valuesOf    []*identity.Member
	// Derived from the content and the set of members that have seen it:
	state, seen, digests, versions []byte
	// size is the size of the last body.
	size int
}

func (m *Machine) me() *identity.Member { return m.gossip.Member(m.self) }

// change applies a change of this node and publishes it. It reports whether the change had an
// effect.
func (m *Machine) change(c Change) bool {
	next, err := m.gossip.Apply(m.self, c)
	if err != nil {
		m.log(Error, "invalid change of the gossip", Attr{"error", err})
		return false
	}
	if next.content == m.gossip.content {
		return false
	}
	m.adopt(next)
	return true
}

// adopt replaces the gossip with a received or locally changed one, and marks it as seen by this
// node unless the node has work to do before it leaves.
func (m *Machine) adopt(next Gossip) {
	if me := next.Member(m.self); me != nil && me.Status == identity.Exiting && !m.exited {
		m.exiting = true
		next = next.notSeen(m.self)
	} else {
		next = next.Saw(m.self)
	}
	m.set(next)
}

func (m *Machine) set(next Gossip) {
	old, was := m.gossip, m.cache
	m.gossip = next
	m.cache.state, m.cache.seen, m.cache.digests, m.cache.versions = nil, nil, nil, nil
	if old.content == next.content {
		if !slices.Equal(old.seen, next.seen) {
			m.publish(Event{Kind: SeenChanged})
			m.updateUndecided()
			m.handleLeaving()
		}
		return
	}
	sameMembers := SameSlice(old.Members(), next.Members())
	sameReach := SameSlice(old.Reachability().Observers, next.Reachability().Observers)
	m.cache.of, m.cache.digest, m.cache.body = next.content, Digest{}, nil
	if !sameMembers {
		m.cache.roles = roles(next.members)
		m.cache.anyDown, m.cache.anyLeaving, m.cache.anyExiting, m.cache.closing = false, false, false, false
		for _, o := range next.members {
			m.cache.anyDown = m.cache.anyDown || o.Status == identity.Down
			m.cache.anyLeaving = m.cache.anyLeaving || o.Status == identity.Leaving
			m.cache.anyExiting = m.cache.anyExiting || o.Status == identity.Exiting
			m.cache.closing = m.cache.closing || o.Status == identity.PreparingForShutdown || o.Status == identity.ReadyForShutdown
		}
	}
	if !sameMembers || !sameReach {
		m.cache.candidates = nil
		m.findUnreachable()
		m.findLeaders()
	}
	m.publishChanges(old, was)
	m.updateUndecided()
	m.handleLeaving()
}

// findUnreachable derives the unreachable members. The slices stay the same if the set of
// unreachable members is unchanged.
func (m *Machine) findUnreachable() {
	m.cache.unreachable, m.cache.open = m.gossip.unreachable(nil), false
	m.cache.unreachable.each(func(i int) { m.cache.open = m.cache.open || maySurvive(m.gossip.members[i]) })
	bad := m.gossip.nodesOf(m.cache.unreachable)
	if !slices.Equal(bad, m.cache.bad) {
		m.cache.bad = bad
		m.cache.others = slices.DeleteFunc(slices.Clone(bad), func(n identity.Node) bool { return n == m.self })
	}
}

func (m *Machine) publish(e Event) { m.out.Events = append(m.out.Events, e) }

func (m *Machine) findLeaders() {
	find := func(role string) identity.Node {
		return leader(m.gossip.members, m.cache.unreachable, m.self, func(o *identity.Member) bool { return o.HasRole(role) })
	}
	m.cache.leader = find("")
	m.cache.roleLeaders = make([]identity.Node, len(m.cache.roles))
	for i, role := range m.cache.roles {
		m.cache.roleLeaders[i] = find(role)
	}
}

func roles(members []*identity.Member) []string {
	var all, last []string
	for _, m := range members {
		if SameSlice(m.Roles, last) {
			continue
		}
		last = m.Roles
		for _, role := range m.Roles {
			if i, found := slices.BinarySearch(all, role); !found {
				all = slices.Insert(all, i, role)
			}
		}
	}
	return all
}

func (m *Machine) digest() Digest {
	if m.cache.digest == (Digest{}) {
		m.cache.digest = m.gossip.Clock().Digest()
	}
	return m.cache.digest
}

func (m *Machine) encodedState() []byte {
	if m.cache.state == nil {
		if m.cache.body == nil {
			m.cache.body = m.gossip.AppendContent(make([]byte, 0, m.cache.size+m.cache.size/8))
			m.cache.size = len(m.cache.body)
		}
		m.cache.state = AppendMessage(nil, State{m.digest(), encodeBitmap(m.gossip.seen), m.cache.body})
	}
	return m.cache.state
}

func (m *Machine) sendState(to identity.Node) { m.sendData(to, KindState, m.encodedState()) }

// sendSeenSet sends the set of members that have seen the version to a node with the same version.
func (m *Machine) sendSeenSet(to identity.Node) {
	m.sendCached(to, &m.cache.seen, func() Message { return Seen{m.digest(), encodeBitmap(m.gossip.seen)} })
}

func (m *Machine) sendDigests(to identity.Node) {
	m.sendCached(to, &m.cache.digests, func() Message { return Digests{m.digest(), m.gossip.SeenDigest()} })
}

func (m *Machine) sendVersions(to identity.Node) {
	m.sendCached(to, &m.cache.versions, func() Message { return Versions{m.gossip.Clock(), m.gossip.SeenDigest()} })
}

// sendCached sends a message that is encoded at most once for each state.
func (m *Machine) sendCached(to identity.Node, cached *[]byte, msg func() Message) {
	if *cached == nil {
		*cached = AppendMessage(nil, msg())
	}
	m.sendData(to, Kind((*cached)[1]), *cached)
}
