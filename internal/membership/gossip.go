// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/refold-io/refold/identity"
)

// Gossip is the state of the cluster as one node sees it, with the set of members that have seen
// this state. It is immutable: a change is another Gossip, which shares the unchanged parts. The
// zero value has no members.
//
// Invariants: no member is Removed; nodes that observe, have a clock entry or have seen the gossip
// are members; no member has a tombstone.
type Gossip struct {
	*content
	seen bitmap
}

// content is a gossip without the set of members that have seen it. Equal clocks imply equal
// contents.
type content struct {
	members    []*identity.Member // sorted by node
	reach      Reachability
	clock      Clock
	tombstones []Tombstone // sorted by node
	extensions []Extension // sorted by number
}

// Tombstone records the removal of a node, which must never become a member again.
type Tombstone struct {
	Node identity.Node
	// At is the time of the removal in seconds of Unix time, on the clock of the node that removed
	// it.
	At int64
	// Count is the number of changes of the removed node that the gossip contains.
	Count uint64
}

// Extension is a field that a newer version added to the gossip. Older versions forward it, and
// merge it by taking the greater bytes.
type Extension struct {
	Number uint64
	Data   []byte
}

// Change is a set of changes that a node applies at once. The gossip does not keep references to
// it.
type Change struct {
	// Put are new members, and members with another status.
	Put []*identity.Member
	// Remove are members to remove. At is the time in seconds of Unix time.
	Remove []identity.Node
	At     int64
	// Observed are new observations of the node itself.
	Observed []Observation
	// Forget removes tombstones from before this time, in seconds of Unix time.
	Forget int64
}

// Observation is an observation of another node.
type Observation struct {
	Subject identity.Node
	Reach   Reach
}

// state returns the content. It is never nil.
func (g Gossip) state() *content {
	if g.content == nil {
		return &content{}
	}
	return g.content
}

// Members returns all members, sorted by node. They must not be modified.
func (g Gossip) Members() []*identity.Member { return g.state().members }

// Reachability returns all observations.
func (g Gossip) Reachability() Reachability { return g.state().reach }

// Clock returns the vector clock.
func (g Gossip) Clock() Clock { return g.state().clock }

// Tombstones returns the removed nodes, sorted. They must not be modified.
func (g Gossip) Tombstones() []Tombstone { return g.state().tombstones }

// Member returns a member, or nil.
func (g Gossip) Member(n identity.Node) *identity.Member {
	if i, found := findMember(g.Members(), n); found {
		return g.members[i]
	}
	return nil
}

// Named returns the members with a name: none or one, and for a short time possibly several.
func (g Gossip) Named(name string) []*identity.Member {
	members := g.Members()
	from, _ := findMember(members, identity.Node{Name: name})
	to := from
	for to < len(members) && members[to].Node.Name == name {
		to++
	}
	return members[from:to]
}

// Removed reports whether a node was removed.
func (g Gossip) Removed(n identity.Node) bool {
	_, found := findTombstone(g.Tombstones(), n)
	return found
}

// HasSeen reports whether a member has seen exactly this state.
func (g Gossip) HasSeen(n identity.Node) bool {
	i, found := findMember(g.Members(), n)
	return found && g.seen.has(i)
}

// SeenBy returns the members that have seen exactly this state, sorted.
func (g Gossip) SeenBy() []identity.Node { return g.nodesOf(g.seen) }

func (g Gossip) nodesOf(set bitmap) []identity.Node {
	nodes := make([]identity.Node, 0, set.count())
	set.each(func(i int) { nodes = append(nodes, g.members[i].Node) })
	return nodes
}

// Saw returns the gossip with a member added to the members that have seen the gossip.
func (g Gossip) Saw(n identity.Node) Gossip {
	if i, found := findMember(g.Members(), n); found {
		g.seen = g.seen.with(i, len(g.members))
	}
	return g
}

func (g Gossip) notSeen(n identity.Node) Gossip {
	if i, found := findMember(g.Members(), n); found && g.seen.has(i) {
		g.seen = slices.Clone(g.seen)
		g.seen[i/64] &^= 1 << (i % 64)
	}
	return g
}

// Apply returns the gossip after a change by self. The clock of the result is one tick later, and
// only self has seen the result. Apply returns g if the change has no effect. It returns an error
// if a status cannot follow the previous one, or if c adds a removed node.
func (g Gossip) Apply(self identity.Node, c Change) (Gossip, error) {
	old := g.state()
	changed := &content{old.members, old.reach, old.clock, old.tombstones, old.extensions}
	if err := changed.put(c.Put); err != nil {
		return g, err
	}
	for _, o := range c.Observed {
		if _, known := findMember(changed.members, o.Subject); known {
			changed.reach = changed.reach.Change(self, o.Subject, o.Reach)
		}
	}
	changed.remove(c.Remove, c.At)
	changed.forget(c.Forget)
	if changed.equal(old) {
		return g, nil
	}
	if _, member := findMember(changed.members, self); member {
		changed.clock = changed.clock.Add(self)
	}
	return Gossip{content: changed}.Saw(self), nil
}

// Ticked returns the gossip with one more tick of self and no other change.
func (g Gossip) Ticked(self identity.Node) Gossip {
	c := *g.state()
	if g.Member(self) != nil {
		c.clock = c.clock.Add(self)
	}
	return Gossip{content: &c}.Saw(self)
}

// equal reports whether no part of a copied content was replaced.
func (c *content) equal(old *content) bool {
	return SameSlice(c.members, old.members) && SameSlice(c.reach.Observers, old.reach.Observers) && SameSlice(c.tombstones, old.tombstones)
}

// SameSlice reports whether two slices share their elements.
func SameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (c *content) put(members []*identity.Member) error {
	var added []*identity.Member
	cloned := false
	for _, m := range members {
		i, known := findMember(c.members, m.Node)
		switch {
		case m.Status == identity.Removed || rank(m.Status) == 0:
			return fmt.Errorf("membership: %v cannot be a member with status %v", m.Node, m.Status)
		case known && sameMember(c.members[i], m):
		case known:
			if now := c.members[i].Status; now != m.Status && !now.CanBecome(m.Status) {
				return fmt.Errorf("membership: %v is %v, it cannot become %v", m.Node, now, m.Status)
			}
			if !cloned {
				c.members, cloned = slices.Clone(c.members), true
			}
			c.members[i] = m
		default:
			if _, buried := findTombstone(c.tombstones, m.Node); buried {
				return fmt.Errorf("membership: %v was removed and cannot become a member again", m.Node)
			}
			added = append(added, m)
		}
	}
	if len(added) > 0 {
		c.members = slices.Concat(c.members, added)
		slices.SortFunc(c.members, func(a, b *identity.Member) int { return a.Node.Compare(b.Node) })
		c.members = slices.CompactFunc(c.members, func(a, b *identity.Member) bool { return a.Node == b.Node })
	}
	return nil
}

func (c *content) remove(nodes []identity.Node, at int64) {
	for _, n := range nodes {
		i, known := findMember(c.members, n)
		if !known {
			continue
		}
		c.members = slices.Delete(slices.Clone(c.members), i, i+1)
		gone := func(other identity.Node) bool { return other == n }
		c.reach = c.reach.Without(gone)
		t := Tombstone{n, at, c.clock.Of(n)}
		c.clock = c.clock.Without(gone)
		j, _ := findTombstone(c.tombstones, n)
		c.tombstones = slices.Insert(slices.Clone(c.tombstones), j, t)
	}
}

func (c *content) forget(before int64) {
	old := func(t Tombstone) bool { return t.At < before }
	if slices.ContainsFunc(c.tombstones, old) {
		c.tombstones = slices.DeleteFunc(slices.Clone(c.tombstones), old)
	}
}

func findTombstone(all []Tombstone, n identity.Node) (int, bool) {
	return slices.BinarySearchFunc(all, n, func(t Tombstone, n identity.Node) int { return t.Node.Compare(n) })
}

// Merge returns the union of two concurrent states. Merging is commutative, associative and
// idempotent. No member has seen the result.
//
// tick is true if the result contains changes of a removed node that the removing node had not
// seen. These changes are not in the merged clock, so the merging node must add its own tick.
// Without this tick, two different contents could have the same clock.
//
// A member that is Down or Exiting on one side and unknown to the other is kept unless there is a
// tombstone. Dropping it would make the result depend on the order of merges.
func (g Gossip) Merge(other Gossip) (merged Gossip, tick bool) {
	a, b := g.state(), other.state()
	m := &content{clock: a.clock.Merge(b.clock)}
	m.tombstones = merge(a.tombstones, b.tombstones, func(x, y *Tombstone) int { return x.Node.Compare(y.Node) }, func(x, y *Tombstone) Tombstone {
		return Tombstone{x.Node, max(x.At, y.At), max(x.Count, y.Count)}
	})
	m.extensions = merge(a.extensions, b.extensions, func(x, y *Extension) int { return cmp.Compare(x.Number, y.Number) }, func(x, y *Extension) Extension {
		return Extension{x.Number, slices.MaxFunc([][]byte{x.Data, y.Data}, bytes.Compare)}
	})
	for i := range m.tombstones {
		t := &m.tombstones[i]
		if count := m.clock.Of(t.Node); count > t.Count {
			t.Count, tick = count, true
		}
	}
	buried := func(n identity.Node) bool {
		_, found := findTombstone(m.tombstones, n)
		return found
	}
	if len(m.tombstones) > 0 {
		m.clock = m.clock.Without(buried)
	}
	var dropped bool
	if m.members, dropped = mergeMembers(a.members, b.members, m.tombstones); dropped {
		m.reach = a.reach.Merge(b.reach, func(n identity.Node) bool {
			_, member := findMember(m.members, n)
			return member
		})
	} else {
		m.reach = a.reach.Merge(b.reach, nil)
	}
	return Gossip{content: m}, tick
}

// mergeMembers returns the members of both sides without removed members, and whether any members
// were left out.
func mergeMembers(a, b []*identity.Member, buried []Tombstone) (merged []*identity.Member, dropped bool) {
	merged = make([]*identity.Member, 0, max(len(a), len(b)))
	ofA, ofB, k := true, true, 0
	for x, y := range Pairs(a, b, compareMembers) {
		var m *identity.Member
		switch {
		case y == nil:
			m = *x
		case x == nil:
			m = *y
		default:
			m = laterMember(*x, *y)
		}
		for k < len(buried) && buried[k].Node.Compare(m.Node) < 0 {
			k++
		}
		if k < len(buried) && buried[k].Node == m.Node {
			dropped = true
			continue
		}
		at := len(merged)
		ofA = ofA && at < len(a) && a[at] == m
		ofB = ofB && at < len(b) && b[at] == m
		merged = append(merged, m)
	}
	switch { // share the memory of one side if possible
	case ofA && len(merged) == len(a):
		return a, dropped
	case ofB && len(merged) == len(b):
		return b, dropped
	}
	return merged, dropped
}

// bitmap is a set of members by their index. nil is the empty set. It is immutable except during
// construction.
type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func (b bitmap) set(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitmap) with(i, n int) bitmap {
	if b.has(i) {
		return b
	}
	more := newBitmap(n)
	copy(more, b)
	more.set(i)
	return more
}

// union returns the union of two sets of n members. It returns b itself if b contains the other
// set.
func (b bitmap) union(other bitmap, n int) bitmap {
	if other.in(b) {
		return b
	}
	all := newBitmap(n)
	copy(all, b)
	for i, word := range other {
		all[i] |= word
	}
	return all
}

func (b bitmap) in(other bitmap) bool {
	for i, word := range b {
		if i >= len(other) && word != 0 || i < len(other) && word&^other[i] != 0 {
			return false
		}
	}
	return true
}

func (b bitmap) count() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// nth returns the index of the k-th member of the set, counted from 0.
func (b bitmap) nth(k int) int {
	for i, word := range b {
		ones := bits.OnesCount64(word)
		if k >= ones {
			k -= ones
			continue
		}
		for ; k > 0; k-- {
			word &= word - 1
		}
		return i*64 + bits.TrailingZeros64(word)
	}
	return -1
}

func (b bitmap) each(f func(int)) {
	for i, word := range b {
		for ; word != 0; word &= word - 1 {
			f(i*64 + bits.TrailingZeros64(word))
		}
	}
}

func full(n int) bitmap {
	all := newBitmap(n)
	for i := range all {
		all[i] = ^uint64(0)
	}
	if n%64 != 0 {
		all[len(all)-1] = 1<<(n%64) - 1
	}
	return all
}
