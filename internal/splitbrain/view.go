// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"cmp"
	"slices"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/membership"
)

// View is the state of the cluster as one node sees it. A resolver keeps its slices, and ignores
// Self and Connected. A slice with the same start and length counts as unchanged.
type View membership.View

func (View) input() {}

func (v *View) status(n identity.Node) identity.Status {
	if m := membership.Lookup(v.Members, n); m != nil {
		return m.Status
	}
	return identity.Removed
}

// isNewcomer reports whether a member was never Up. A process that crashes again and again while it
// joins, each time as another node, must not keep the members from a decision, and is no evidence
// that their reachability is unstable.
func (v *View) isNewcomer(n *identity.Node) bool {
	m := membership.Lookup(v.Members, *n)
	return m != nil && m.UpNumber == identity.NeverUp
}

// gone returns the members that do not count: unreachable members and Down members, except self.
func (v *View) gone(self identity.Node) []identity.Node {
	gone := make([]identity.Node, 0, len(v.Unreachable))
	for i := range v.Members {
		m := &v.Members[i]
		if m.Node != self && (m.Status == identity.Down || contains(v.Unreachable, m.Node)) {
			gone = append(gone, m.Node)
		}
	}
	return gone
}

type change struct {
	// restart: StableAfter starts again.
	restart bool
	// newcomers: a member that was never Up has changed. StableAfter starts again only if no other
	// change is pending.
	newcomers bool
	// reach counts the changes of reachability.
	reach int
	// removed: a member was removed.
	removed bool
}

func diff(self identity.Node, old, now *View) change {
	var c change
	if !membership.SameSlice(old.Members, now.Members) {
		for was, is := range membership.Pairs(old.Members, now.Members, membership.CompareNodes) {
			switch {
			case is == nil:
				c.removed = true
			case was != nil && was.Status == is.Status:
			case is.Status == identity.Up || is.Status == identity.Exiting:
				c.restart = true
			case is.Status == identity.Down:
				switch {
				case is.UpNumber == identity.NeverUp && is.Node != self:
					c.newcomers = true
					continue
				case is.Node != self:
					c.reach++
				}
				c.restart = true
			}
		}
	}
	if !membership.SameSlice(old.Unreachable, now.Unreachable) {
		for was, is := range membership.Pairs(old.Unreachable, now.Unreachable, func(a, b *identity.Node) int { return a.Compare(*b) }) {
			// The removal of an unreachable member is not a change of reachability.
			switch {
			case was != nil && is != nil, is == nil && now.status(*was) == identity.Removed:
			case now.isNewcomer(cmp.Or(was, is)):
				c.newcomers = true
			default:
				c.reach++
				c.restart = true
			}
		}
	}
	return c
}

func contains(nodes []identity.Node, n identity.Node) bool {
	_, found := slices.BinarySearchFunc(nodes, n, identity.Node.Compare)
	return found
}

// partition is the input of a strategy. Its slices are sorted by node.
type partition struct {
	members []identity.Member
	gone    []identity.Node
	records []record
	seen    []identity.Node
}

// record: the observer finds the subject unreachable.
type record struct{ observer, subject identity.Node }

func newPartition(self identity.Node, v *View) partition {
	p := partition{members: v.Members, gone: v.gone(self), seen: v.Seen}
	var subjects []identity.Node
	v.Reachability.EachUnreachable(func(observer identity.Node, rec membership.Record) {
		if v.status(observer) != identity.Removed && v.status(rec.Subject) != identity.Removed {
			p.records = append(p.records, record{observer, rec.Subject})
			subjects = append(subjects, rec.Subject)
		}
	})
	slices.SortFunc(subjects, identity.Node.Compare)
	p.dropOtherSide(slices.Compact(subjects))
	return p
}

// isOtherSide reports whether a member is on the other side: it is unreachable and has not seen the
// view. A member that has seen it is on this side, whatever the observations are.
func (p *partition) isOtherSide(n identity.Node) bool {
	return contains(p.gone, n) && !contains(p.seen, n)
}

// dropOtherSide removes the observations of the other side. They have arrived if the connection was
// lost in one direction later than in the other. The other side finds this side unreachable in any
// case. Its observations do not make members of this side less reachable here.
//
// When the other side decides, it finds all of this side unreachable. If a member of this side is
// not found unreachable by any node, the view by which the other side decides has not arrived here,
// so no member of this side counts there. If every member of this side is found unreachable by a
// node, members of this side may count there, and the observations are kept. Members that are not
// Up are ignored, because they may have joined on this side only.
func (p *partition) dropOtherSide(subjects []identity.Node) {
	known := countedBy("")
	if !slices.ContainsFunc(p.members, func(m identity.Member) bool { return known.includes(&m) && !contains(subjects, m.Node) }) {
		return
	}
	var found []identity.Node
	p.records = slices.DeleteFunc(p.records, func(r record) bool {
		if p.isOtherSide(r.observer) {
			return true
		}
		found = append(found, r.subject)
		return false
	})
	slices.SortFunc(found, identity.Node.Compare)
	p.gone = slices.DeleteFunc(p.gone, func(n identity.Node) bool { return contains(p.seen, n) && !contains(found, n) })
}

// countRule selects the members to count.
type countRule struct {
	role    string
	joining bool // includes members that are not Up yet
	leaving bool // includes members that are leaving
}

// countedBy is the countRule without safety margins.
func countedBy(role string) countRule { return countRule{role: role, leaving: true} }

func (c countRule) includes(m *identity.Member) bool {
	switch m.Status {
	case identity.Joining, identity.WeaklyUp:
		return c.joining && m.HasRole(c.role)
	case identity.Leaving:
		return c.leaving && m.HasRole(c.role)
	case identity.Up, identity.PreparingForShutdown, identity.ReadyForShutdown:
		return m.HasRole(c.role)
	case identity.Down, identity.Exiting, identity.Removed:
	}
	return false
}

type count struct {
	here, there int
	// lowest and oldest are the first members by node and by age, nil if there are none.
	lowest, oldest *identity.Member
}

func (c *count) all() int { return c.here + c.there }

func (p *partition) count(peer countRule) count {
	var c count
	for i := range p.members {
		m := &p.members[i]
		if !peer.includes(m) {
			continue
		}
		if contains(p.gone, m.Node) {
			c.there++
		} else {
			c.here++
		}
		if c.lowest == nil {
			c.lowest = m
		}
		if c.oldest == nil || m.OlderThan(c.oldest) {
			c.oldest = m
		}
	}
	return c
}

// onlyLeaves reports whether all members of this side are leaving, and some members of the other
// side are not leaving.
func (p *partition) onlyLeaves() bool {
	c := p.count(countRule{joining: true})
	return c.here == 0 && c.there > 0
}

// onlyNewcomers reports whether no member of this side, but one of the other side, was Up. The other
// side may not have noticed that it lost this side, so this side must not survive.
func (p *partition) onlyNewcomers() bool {
	c := p.count(countedBy(""))
	return c.here == 0 && c.there > 0
}

func (p *partition) isHere(m *identity.Member) bool { return !contains(p.gone, m.Node) }

// downable returns the members that can be downed and for which f returns true.
func (p *partition) downable(f func(identity.Node) bool) []identity.Node {
	var nodes []identity.Node
	for i := range p.members {
		m := &p.members[i]
		if (countRule{joining: true, leaving: true}).includes(m) && f(m.Node) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// indirect returns the members that are neither clearly on this side nor on the other side. A
// member is indirectly connected if it finds a member unreachable and is found unreachable itself.
// Both ends of an observation whose subject has seen the view are also indirectly connected.
func (p *partition) indirect() []identity.Node {
	observers := make([]identity.Node, 0, len(p.records))
	for _, r := range p.records {
		observers = append(observers, r.observer)
	}
	slices.SortFunc(observers, identity.Node.Compare)
	var nodes []identity.Node
	for _, r := range p.records {
		if contains(observers, r.subject) {
			nodes = append(nodes, r.subject)
		}
		if contains(p.seen, r.subject) {
			nodes = append(nodes, r.observer, r.subject)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	return slices.Compact(nodes)
}

// sides returns the partition as two sides without a connection between them. Each side is fully
// connected.
func (p *partition) sides() partition {
	sides := partition{members: p.members, seen: p.seen}
	for _, n := range p.gone {
		if p.isOtherSide(n) {
			sides.gone = append(sides.gone, n)
		}
	}
	return sides
}

// Input is an input of a resolver: a View, a LeaseAnswer, a LeaseLost, a LeaseReleased or a Link.
type Input interface{ input() }

// LeaseAnswer answers AskLease. Each AskLease must have exactly one LeaseAnswer.
type LeaseAnswer struct {
	// Held is true if the lease is certainly held. After an error it is false.
	Held bool
	// Owner is the other node that holds the lease, zero if unknown.
	Owner identity.Node
}

// LeaseLost reports the loss of the held lease. The resolver acquires the lease again until its
// planned release, because the other side may still be about to decide and must not acquire the
// lease.
type LeaseLost struct{}

// LeaseReleased answers ReleaseLease.
type LeaseReleased struct {
	// Done is false if the lease may still be held. Then the release is repeated.
	Done bool
}

// Link reports whether the node is connected. While it is not, the resolver takes no decision. When
// it is connected again, StableAfter restarts. The initial state is connected.
type Link struct{ Up bool }

func (LeaseAnswer) input()   {}
func (LeaseLost) input()     {}
func (LeaseReleased) input() {}
func (Link) input()          {}

// Effects are the effects of a resolver, in the order of the fields.
type Effects struct {
	// Notes are for the log and the counters.
	Notes []Note
	// ReleaseLease releases the lease. LeaseReleased is the answer. Operations on the lease run one
	// after another.
	ReleaseLease bool
	// AskLease acquires the lease in the name of this node. LeaseAnswer is the answer, at once if
	// the lease is held.
	AskLease bool
	// Down marks these members as down, in this order. This node is the last, because it ends when
	// it is Down. The caller owns the slice.
	Down []identity.Node
}

// NoteKind is the kind of a note.
type NoteKind uint8

const (
	// Decided means that a decision downs nodes.
	Decided NoteKind = 1 + iota
	// Unstable means that the reachability does not become stable, so all members are downed.
	Unstable
	// WithoutLease means that the lease was not acquired, so the decision was reversed.
	WithoutLease
	// Outgrown means that there are more members than a static quorum allows. The next unreachable
	// member downs all.
	Outgrown
	// Automatic means that nodes are downed without a strategy. It is also reported once at the
	// start, without nodes, as a warning.
	Automatic
	// Orphaned means that all members that accepted this node are Down, so this node downs itself.
	Orphaned
	// LeftToOwner means that a member of this side holds the lease, so this node waits for the
	// decision of that member.
	LeftToOwner
)

func (k NoteKind) String() string {
	return enum.Name(k, "note",
		"", "decided", "unstable", "without lease", "outgrown", "automatic", "orphaned", "left to the owner")
}

// Note describes an action of a resolver.
type Note struct {
	Kind NoteKind
	// Decision is the decision, in all notes except Outgrown, Automatic and LeftToOwner.
	Decision Decision
	// Down are the downed nodes, sorted.
	Down []identity.Node
	// Here and There are the numbers of counted members on this side and on the other.
	Here, There int
}
