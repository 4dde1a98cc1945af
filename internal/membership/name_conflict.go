// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// contested is a name that two incarnations want. The one that is a member is
// asked whether it lives; if it doesn't answer, it has been restarted.
type contested struct {
	holder identity.Node
	joiner identity.Node
	since  time.Duration
}

// maxContested bounds how many names are contested at a time; the joiners of
// more ask again.
const maxContested = 1000

// contest begins to find out whether who has a name lives.
func (m *Machine) contest(joiner identity.Node, holders []*Member) {
	for _, holder := range holders {
		if m.gossip.Reachability().By(m.self, holder.Node) == Terminated {
			if holder.Status != Down { // it answers nobody any more
				m.down(holder.Node)
			}
			continue // it goes as soon as all agree
		}
		if i := slices.IndexFunc(m.names, func(c contested) bool { return c.holder == holder.Node }); i >= 0 {
			m.names[i].joiner = joiner
			continue
		}
		if len(m.names) >= maxContested {
			continue
		}
		m.names = append(m.names, contested{holder.Node, joiner, m.now})
		m.send(identity.Node{Name: holder.Node.Name}, Ping{holder.Node})
		m.soon(timerName, m.now+m.s.HeartbeatInterval)
	}
}

// checkNames asks again, or believes that nobody is there.
func (m *Machine) checkNames() {
	var silent []identity.Node
	open := m.names[:0]
	for _, c := range m.names {
		switch {
		case m.gossip.Member(c.holder) == nil:
		case m.link.state != linkUp || m.link.suspended || m.now-m.link.heard >= 2*m.s.HeartbeatInterval:
			c.since = m.now // silence says nothing
			open = append(open, c)
		case m.now-c.since >= m.s.AcceptablePause:
			silent = append(silent, c.holder)
		default:
			m.send(identity.Node{Name: c.holder.Name}, Ping{c.holder})
			open = append(open, c)
		}
	}
	m.names = open
	if len(open) > 0 {
		m.again(timerName, m.s.HeartbeatInterval)
	}
	for _, holder := range silent {
		m.restarted(holder)
	}
}

// restarted gives up an incarnation of which there is evidence that it has been
// restarted.
func (m *Machine) restarted(holder identity.Node) {
	m.count.TimedOut[TimeoutName]++
	m.log(Warn, "a node was restarted, its old incarnation is marked as down", Attr{"member", holder})
	c := Change{Observed: []Observation{{holder, Terminated}}}
	if o := m.gossip.Member(holder); o != nil && o.Status.CanBecome(Down) {
		c.Put = []*Member{withStatus(o, Down)}
	}
	m.change(c)
}

// Whoever may found a cluster has to be the only one with its name that does. Before
// it founds one it asks its own name, as it asks the seeds, and whoever hears that answers
// NameInUse: a member, or of two that ask the one with the lower UID. Afterwards,
// as long as it is alone, it says so again and again with a Ping of itself: that ends who only
// asks, and is answered by a member that was let in or has let somebody in, or of two
// that are alone by the one with the lower UID. So one remains, whatever is late or lost:
// nobody is ended but by one that is further than it, or as far and with a lower UID.

// askNamesake asks whether another process with this node's name lives, or may found a cluster.
func (m *Machine) askNamesake() { m.send(identity.Node{Name: m.self.Name}, InitJoin{m.cfg.Check}) }

// claim says that this node has founded a cluster, in which it is alone.
func (m *Machine) claim() { m.send(identity.Node{Name: m.self.Name}, Ping{m.self}) }

// namesakeAsks answers another process with this node's name that may found a cluster.
func (m *Machine) namesakeAsks(from identity.Node) {
	asks := m.phase == seeking && m.join.first
	switch {
	case m.phase == member && m.me().Status != Down, asks && m.self.UID < from.UID:
		m.send(from, NameInUse{m.self})
	case asks: // it may have missed the question that it should have answered
		m.askNamesake()
	}
}

// claimedBy hears that another process with this node's name has founded a cluster.
func (m *Machine) claimedBy(from identity.Node) {
	switch {
	case m.phase == seeking && m.join.first:
		m.nameTaken(from)
	case m.phase == member && m.me().Status != Down && (!m.lone || m.self.UID < from.UID):
		m.send(from, Pong{})
	}
}

// nameTaken ends the membership of a node whose name is another's.
func (m *Machine) nameTaken(holder identity.Node) {
	m.log(Error, "the name of this node is in use", Attr{"holder", holder})
	m.stopFor(NameTaken, holder.String())
}

// ping answers whether this node lives. One that is about to stop does not. Who was
// removed is told: it may look for a member whose name this node has now.
func (m *Machine) ping(from identity.Node, msg Ping) {
	if m.phase == member && m.gossip.Buried(from) {
		m.drop(DropRemoved)
		m.send(from, Quarantined{})
		return
	}
	switch {
	case msg.Node == from && from.Name == m.self.Name:
		m.claimedBy(from)
	case msg.Node == m.self && (m.phase != member || m.me().Status != Down):
		m.send(from, Pong{})
	}
}

// pong says that who has a name lives: the newcomer can't have it.
func (m *Machine) pong(from identity.Node) {
	if from.Name == m.self.Name && m.lone {
		m.nameTaken(from)
		return
	}
	i := slices.IndexFunc(m.names, func(c contested) bool { return c.holder == from })
	if i < 0 {
		if m.gossip.Member(from) == nil {
			m.drop(DropUnexpected)
		}
		return
	}
	m.log(Warn, "a node wants the name of another that lives", Attr{"member", m.names[i].joiner}, Attr{"holder", from})
	m.send(m.names[i].joiner, NameInUse{from})
	m.names = slices.Delete(m.names, i, i+1)
}

// nameInUse says that this node can't join.
func (m *Machine) nameInUse(from identity.Node, msg NameInUse) {
	asked := m.phase == trying && from.Name == m.join.name || m.phase == member && m.asksAgain(from) ||
		m.phase == seeking && m.join.first && from == msg.Holder
	if !asked || msg.Holder.Name != m.self.Name || msg.Holder == m.self {
		m.drop(DropUnexpected)
		return
	}
	m.nameTaken(msg.Holder)
}

// duplicates returns who has to go because another member has its name: two
// nodes have let both in without knowing of each other. The older one stays.
func duplicates(members []*Member) (losers []*Member) {
	for i := 1; i < len(members); i++ {
		keep := members[i-1]
		if keep.Status == Down {
			continue
		}
		for ; i < len(members) && members[i].Node.Name == keep.Node.Name; i++ {
			other := members[i]
			switch {
			case other.Status == Down:
			case other.UpNumber < keep.UpNumber:
				losers = append(losers, keep)
				keep = other
			default:
				losers = append(losers, other)
			}
		}
	}
	return losers
}
