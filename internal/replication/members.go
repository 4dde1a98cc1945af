// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"math"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
)

type membersState struct {
	known       map[identity.Node]bool // members whose messages are accepted: all members that are not down
	all         []identity.Node        // all members, sorted
	member      bool                   // the node has been a member
	status      identity.Status        // status of this node
	upNumber    int32                  // up number of this node
	eligible    []peer                 // other nodes that count in a quorum, sorted
	gossip      []identity.Node        // nodes that receive changes: eligible and WeaklyUp ones
	reachable   []identity.Node        // the reachable nodes of gossip
	unreachable []identity.Node
	leader      identity.Node   // the first member that is Up
	peers       []peer          // buffer of order
	order       []identity.Node // result of order
}

// peer is another node that counts in a quorum.
type peer struct {
	node        identity.Node
	upNumber    int32
	exiting     bool
	unreachable bool
}

func contains(nodes []identity.Node, n identity.Node) bool {
	_, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	return found
}

func (m *Machine) isAlive(n identity.Node) bool { return contains(m.members.all, n) }

func (m *Machine) setMembers(in Members) {
	s := &m.members
	before := s.all
	*s = membersState{known: map[identity.Node]bool{}, member: s.member, unreachable: slices.SortedFunc(slices.Values(in.Unreachable), identity.Node.Compare)}
	here := false
	for i := range in.All {
		o := &in.All[i]
		s.all = append(s.all, o.Node)
		if o.Node == m.self {
			here, s.status, s.upNumber = true, o.Status, o.UpNumber
		}
		if o.Status == identity.Down || o.Status == identity.Removed || !m.takesPart(o) {
			continue
		}
		if o.Status == identity.Up && s.leader.IsZero() {
			s.leader = o.Node
		}
		if o.Node == m.self {
			continue
		}
		s.known[o.Node] = true
		if o.Status == identity.Joining {
			continue
		}
		unreachable := contains(s.unreachable, o.Node)
		s.gossip = append(s.gossip, o.Node)
		if !unreachable {
			s.reachable = append(s.reachable, o.Node)
		}
		if o.Status != identity.WeaklyUp {
			s.eligible = append(s.eligible, peer{o.Node, o.UpNumber, o.Status == identity.Exiting, unreachable})
		}
	}
	for _, n := range before {
		if n != m.self && !s.known[n] && !contains(s.all, n) {
			m.pruning.removed[n] = m.pruning.clock
			delete(m.deltas.followers, n)
		}
	}
	for _, n := range s.all {
		delete(m.pruning.removed, n)
	}
	for _, n := range s.gossip {
		m.deltas.addFollower(n)
	}
	if s.member && !here {
		m.note(Note{Kind: NoteRemoved, Node: m.self})
		m.stop()
	} else if here {
		s.member = true
		m.startPull()
	}
}

// takesPart reports whether a member holds the data.
func (m *Machine) takesPart(o *identity.Member) bool {
	return !slices.ContainsFunc(m.cfg.Roles, func(role string) bool { return !o.HasRole(role) })
}

// countsIn reports whether this node counts for a level. A Joining or WeaklyUp node holds the data
// but is not part of a majority. If such nodes counted, two of them that do not see each other
// could each reach a majority by counting themselves.
func (m *Machine) countsIn(l Level) bool {
	if l.Kind != Majority && l.Kind != MajorityPlus {
		return true
	}
	return m.members.status != identity.Joining && m.members.status != identity.WeaklyUp
}

// total returns the number of nodes that count for a level.
func (m *Machine) total(l Level) int {
	n := 0
	if m.countsIn(l) {
		n = 1
	}
	for i := range m.members.eligible {
		if !m.members.eligible[i].exiting || !l.withoutExiting() {
			n++
		}
	}
	return n
}

// order returns the nodes for a request, in the order in which the request is sent to them. The
// result is valid until the next call.
func (m *Machine) order(l Level, preferOldest bool, stable *entry) []identity.Node {
	if l.Kind == Local {
		return nil
	}
	peers := m.members.peers[:0]
	for _, p := range m.members.eligible {
		if !p.exiting || !l.withoutExiting() {
			peers = append(peers, p)
		}
	}
	switch n := len(peers); {
	case preferOldest:
		slices.SortFunc(peers, func(a, b peer) int {
			return cmp.Or(cmp.Compare(a.upNumber, b.upNumber), a.node.Compare(b.node))
		})
	case stable != nil && n > 0:
		// Send the deltas of a key to the same nodes, so that they have no gaps.
		k := int(stable.bucket) % n
		slices.Reverse(peers[:k])
		slices.Reverse(peers[k:])
		slices.Reverse(peers)
	default:
		m.rand.Shuffle(n, func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	}
	nodes := m.members.order[:0]
	for turn := range askLast + 1 {
		for _, p := range peers {
			if m.askOrderOf(&p) == turn {
				nodes = append(nodes, p.node)
			}
		}
	}
	m.members.peers, m.members.order = peers, nodes
	return nodes
}

// askOrder is the rank of a node: a request is sent to nodes of a lower rank first.
type askOrder int

const (
	askFirst      askOrder = iota
	askAfterReady          // the node is new and still fetches the data, some of it from this node
	askLast
)

func (m *Machine) askOrderOf(p *peer) askOrder {
	switch {
	case p.unreachable:
		return askLast
	case m.isPullingFromHere(p.node):
		return askAfterReady
	}
	return askFirst
}

// Level is the number of replicas that must take part in a request before it is answered. The node
// itself is one of them, except if it is Joining or WeaklyUp and the level is a majority. In this
// case, a majority of the other nodes must take part. The zero value is Local.
type Level struct {
	Kind LevelKind
	// N is the number of replicas for Count, and the number of replicas beyond a majority for
	// MajorityPlus.
	N int
	// MinCap is the minimum number of replicas of a majority. The number of nodes limits it.
	MinCap int
}

// LevelKind is the kind of a level.
type LevelKind uint8

// The kinds.
const (
	// Local is the node itself.
	Local LevelKind = iota
	// Count is a number of replicas, at least 2.
	Count
	// Majority is more than half of the nodes.
	Majority
	// MajorityPlus is N nodes more than a majority. Exiting nodes do not count.
	MajorityPlus
	// All is all nodes. Exiting nodes do not count.
	All
)

func (k LevelKind) String() string {
	return enum.Name(k, "level", "local", "count", "majority", "majority plus", "all")
}

func (l Level) validate() error {
	switch {
	case l.Kind > All:
		return Errorf(ErrInvalid, "%v", l.Kind)
	case l.Kind == Count && l.N < 2:
		return Errorf(ErrInvalid, "count of %d replicas, minimum 2", l.N)
	case l.N < 0 || l.N > math.MaxInt32 || l.MinCap < 0 || l.MinCap > math.MaxInt32:
		return Errorf(ErrInvalid, "level %v with N %d and MinCap %d", l.Kind, l.N, l.MinCap)
	}
	return nil
}

// Required returns how many of n replicas must take part. For Count it may exceed n.
func (l Level) Required(n int) int {
	switch l.Kind {
	case Count:
		return l.N
	case Majority:
		return min(n, max(n/2+1, l.MinCap))
	case MajorityPlus:
		return min(n, max(n/2+1+l.N, l.MinCap))
	case All:
		return n
	case Local:
	}
	return 1
}

func (l Level) withoutExiting() bool { return l.Kind == MajorityPlus || l.Kind == All }
