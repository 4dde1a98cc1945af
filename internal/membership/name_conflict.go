// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// contested is a name that two incarnations claim. The member with the name receives a Ping. If the
// member does not reply, its process has been restarted.
type contested struct {
	holder identity.Node
	joiner identity.Node
	since  time.Duration
}

// maxContested limits the contested names at a time. Further joiners repeat their requests.
const maxContested = 1000

func (m *Machine) contest(joiner identity.Node, holders []*identity.Member) {
	for _, holder := range holders {
		if m.gossip.Reachability().By(m.self, holder.Node) == Terminated {
			if holder.Status != identity.Down { // a member that is Down does not reply
				m.down(holder.Node)
			}
			continue // it is removed when the members agree
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

// checkNames repeats Pings, or concludes that the owner is dead.
func (m *Machine) checkNames() {
	var silent []identity.Node
	open := m.names[:0]
	for _, c := range m.names {
		switch {
		case m.gossip.Member(c.holder) == nil:
		case m.link.state != linkUp || m.link.suspended || m.now-m.link.heard >= 2*m.s.HeartbeatInterval:
			c.since = m.now // the silence is not evidence
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

func (m *Machine) restarted(holder identity.Node) {
	m.count.TimedOut[TimeoutName]++
	m.log(Warn, "node was restarted: downing its previous incarnation", Attr{"member", holder})
	c := Change{Observed: []Observation{{holder, Terminated}}}
	if o := m.gossip.Member(holder); o != nil && o.Status.CanBecome(identity.Down) {
		c.Put = []*identity.Member{withStatus(o, identity.Down)}
	}
	m.change(c)
}

// Of all processes with one name only one may found a cluster. Before a node founds a cluster it
// sends InitJoin to its own name as well as to the seeds. A member that receives the InitJoin
// replies with NameInUse. Of two joining nodes, the one with the lower UID replies. After a node
// has founded a cluster, and as long as it is the only member, it repeatedly sends a Ping to its
// own name. The Ping ends a node that is only joining. A member that was accepted or has accepted
// another node replies to the Ping. Of two nodes that are each alone in a cluster, the one with the
// lower UID replies. So exactly one node remains, even if messages are late or lost: a node ends
// only because of a node that has progressed further, or equally far with a lower UID.

// askNamesake asks whether another process with this node's name is alive or may found a cluster.
func (m *Machine) askNamesake() { m.send(identity.Node{Name: m.self.Name}, InitJoin{m.cfg.Check}) }

// claim announces that this node has founded a cluster in which it is alone.
func (m *Machine) claim() { m.send(identity.Node{Name: m.self.Name}, Ping{m.self}) }

// namesakeAsks replies to another process with this node's name that may found a cluster.
func (m *Machine) namesakeAsks(from identity.Node) {
	asks := m.phase == askingSeeds && m.join.first
	switch {
	case m.phase == member && m.me().Status != identity.Down, asks && m.self.UID < from.UID:
		m.send(from, NameInUse{m.self})
	case asks: // the other process should have answered, but may have missed the request of this node
		m.askNamesake()
	}
}

func (m *Machine) claimedBy(from identity.Node) {
	if m.phase == askingSeeds && m.join.first {
		m.nameTaken(from)
	} else if m.phase == member && m.me().Status != identity.Down && (!m.lone || m.self.UID < from.UID) {
		m.send(from, Pong{})
	}
}

func (m *Machine) nameTaken(holder identity.Node) {
	m.log(Error, "join: the name of this node is in use", Attr{"holder", holder})
	m.stopFor(NameTaken, holder.String())
}

// ping replies that this node is alive, unless it is about to stop. A removed node is informed,
// because it may have sent the Ping to a member whose name this node has now.
func (m *Machine) ping(from identity.Node, msg Ping) {
	if m.phase == member && m.gossip.Removed(from) {
		m.drop(DropRemoved)
		m.send(from, Quarantined{})
		return
	}
	if msg.Node == from && from.Name == m.self.Name {
		m.claimedBy(from)
	} else if msg.Node == m.self && (m.phase != member || m.me().Status != identity.Down) {
		m.send(from, Pong{})
	}
}

// pong handles the reply of a name's owner: the joining node cannot have the name.
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
	m.log(Warn, "join: request with the name of a live node", Attr{"member", m.names[i].joiner}, Attr{"holder", from})
	m.send(m.names[i].joiner, NameInUse{from})
	m.names = slices.Delete(m.names, i, i+1)
}

func (m *Machine) nameInUse(from identity.Node, msg NameInUse) {
	asked := m.phase == joining && from.Name == m.join.name || m.phase == member && m.asksAgain(from) ||
		m.phase == askingSeeds && m.join.first && from == msg.Holder
	if !asked || msg.Holder.Name != m.self.Name || msg.Holder == m.self {
		m.drop(DropUnexpected)
		return
	}
	m.nameTaken(msg.Holder)
}

// duplicates returns the members that must be removed because another member has their name: two
// nodes accepted them independently. The older member stays.
func duplicates(members []*identity.Member) (losers []*identity.Member) {
	for i := 1; i < len(members); i++ {
		keep := members[i-1]
		if keep.Status == identity.Down {
			continue
		}
		for ; i < len(members) && members[i].Node.Name == keep.Node.Name; i++ {
			other := members[i]
			switch {
			case other.Status == identity.Down:
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
