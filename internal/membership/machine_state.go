// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"github.com/refold-io/refold/identity"
)

// cache holds what follows from the gossip and is asked for often.
type cache struct {
	// These follow from the content.
	of          *content
	digest      Digest
	body        []byte
	unreachable bitmap
	bad         []identity.Node // the same as nodes
	others      []identity.Node // the same without self
	leader      identity.Node
	roles       []string
	roleLeaders []identity.Node
	anyDown     bool
	anyLeaving  bool
	anyExiting  bool
	open        bool   // it is open about somebody whether to go on without
	closing     bool   // the whole cluster is about to stop
	candidates  bitmap // whom to gossip with
	values      []Member
	valuesOf    []*Member
	// These follow from the content and from who has seen it.
	state, seen, digests, versions []byte
	// size is that of the last body.
	size int
}

// me returns this node as a member.
func (m *Machine) me() *Member { return m.gossip.Member(m.self) }

// change makes a change of this node's own and publishes it. It reports whether
// it changed anything.
func (m *Machine) change(c Change) bool {
	next, err := m.gossip.Apply(m.self, c)
	if err != nil {
		m.log(Error, "a change that can't be", Attr{"error", err})
		return false
	}
	if next.content == m.gossip.content {
		return false
	}
	m.adopt(next)
	return true
}

// adopt takes what another node knew, or a change of this node's own, and sees
// it, unless this node still has to do something before it goes.
func (m *Machine) adopt(next Gossip) {
	if me := next.Member(m.self); me != nil && me.Status == Exiting && !m.exited {
		m.exiting = true
		next = next.notSeen(m.self)
	} else {
		next = next.Saw(m.self)
	}
	m.set(next)
}

// set replaces the gossip and publishes the difference.
func (m *Machine) set(next Gossip) {
	old, was := m.gossip, m.cache
	m.gossip = next
	m.cache.state, m.cache.seen, m.cache.digests, m.cache.versions = nil, nil, nil, nil
	if old.content == next.content {
		if !slices.Equal(old.seen, next.seen) {
			m.publish(Event{Kind: SeenChanged})
			m.weigh()
			m.leavers()
		}
		return
	}
	sameMembers := sameSlice(old.Members(), next.Members())
	sameReach := sameSlice(old.Reachability().Observers, next.Reachability().Observers)
	m.cache.of, m.cache.digest, m.cache.body = next.content, Digest{}, nil
	if !sameMembers || !sameReach {
		m.findUnreachable()
		m.findOpen()
		m.cache.candidates = nil
	}
	if !sameMembers {
		m.cache.roles = roles(next.members)
		m.cache.anyDown, m.cache.anyLeaving, m.cache.anyExiting, m.cache.closing = false, false, false, false
		for _, o := range next.members {
			m.cache.anyDown = m.cache.anyDown || o.Status == Down
			m.cache.anyLeaving = m.cache.anyLeaving || o.Status == Leaving
			m.cache.anyExiting = m.cache.anyExiting || o.Status == Exiting
			m.cache.closing = m.cache.closing || o.Status == PreparingForShutdown || o.Status == ReadyForShutdown
		}
	}
	if !sameMembers || !sameReach {
		m.findLeaders()
	}
	m.publishChanges(old, was)
	m.weigh()
	m.leavers()
}

// findUnreachable finds who is unreachable. The slices stay the same if nobody
// else is.
func (m *Machine) findUnreachable() {
	m.cache.unreachable = m.gossip.unreachable(nil)
	bad := nodesOf(m.gossip.members, m.cache.unreachable)
	if !slices.Equal(bad, m.cache.bad) {
		m.cache.bad = bad
		m.cache.others = slices.DeleteFunc(slices.Clone(bad), func(n identity.Node) bool { return n == m.self })
	}
}

func (m *Machine) publish(e Event) { m.out.Events = append(m.out.Events, e) }

// findLeaders finds the leader in all and of each role.
func (m *Machine) findLeaders() {
	find := func(role string) identity.Node {
		return leader(m.gossip.members, m.cache.unreachable, m.self, func(o *Member) bool { return o.HasRole(role) })
	}
	m.cache.leader = find("")
	m.cache.roleLeaders = make([]identity.Node, len(m.cache.roles))
	for i, role := range m.cache.roles {
		m.cache.roleLeaders[i] = find(role)
	}
}

// roles returns all roles of the members, sorted.
func roles(members []*Member) []string {
	var all, last []string
	for _, m := range members {
		if sameSlice(m.Roles, last) {
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

// digest stands for the version of the gossip.
func (m *Machine) digest() Digest {
	if m.cache.digest == (Digest{}) {
		m.cache.digest = m.gossip.Clock().Digest()
	}
	return m.cache.digest
}

// encodedState returns the gossip as a message.
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

// sendSeen tells a node that has the same version who has seen it.
func (m *Machine) sendSeen(to identity.Node) {
	if m.cache.seen == nil {
		m.cache.seen = AppendMessage(nil, Seen{m.digest(), encodeBitmap(m.gossip.seen)})
	}
	m.sendData(to, KindSeen, m.cache.seen)
}

func (m *Machine) sendDigests(to identity.Node) {
	if m.cache.digests == nil {
		m.cache.digests = AppendMessage(nil, Digests{m.digest(), m.gossip.SeenDigest()})
	}
	m.sendData(to, KindDigests, m.cache.digests)
}

func (m *Machine) sendVersions(to identity.Node) {
	if m.cache.versions == nil {
		clock := m.gossip.Clock()
		m.cache.versions = AppendMessage(make([]byte, 0, 2*nodeSize*(len(clock)+2)), Versions{clock, m.gossip.SeenDigest()})
	}
	m.sendData(to, KindVersions, m.cache.versions)
}
