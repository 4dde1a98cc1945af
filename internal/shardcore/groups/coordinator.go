// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// Loads in thousandths: outside of these limits the number of instances changes, so that the load
// becomes the target.
const (
	highLoad   = 800
	lowLoad    = 400
	targetLoad = 600
)

// coordinator changes the table. It belongs to the machine of its node.
type coordinator struct {
	m          *Machine
	nodes      map[identity.Node]*participant
	must       []identity.Node // the members whose reports are required
	lag        int             // required members that have not reported the current table
	collecting bool            // the table may not be the latest one
	merged     Version         // of the table with which the term began
	deltaFrom  Version         // updates of older tables are complete
	retryAt    time.Duration
	wakeAt     time.Duration
	rescale    map[string]int
	ending     map[string]bool // exclusive groups whose instances end because their number changes
	loads      map[string]*loadState
	hosts      map[string]*hostSet // nil if it must be computed again
}

// participant is a node that has sent a report.
type participant struct {
	*report

	running map[Instance]running
}

// loadState is when the load of a group began to be too high or too low, 0 if it is not.
type loadState struct{ high, low time.Duration }

// hostSet is the set of nodes of a group.
type hostSet struct {
	nodes    []identity.Node // that can get instances, sorted
	oldest   *identity.Member
	settings Declaration // of the oldest node
}

func newCoordinator(m *Machine, now time.Duration) *coordinator {
	c := &coordinator{
		m: m, nodes: map[identity.Node]*participant{}, collecting: true, rescale: map[string]int{}, ending: map[string]bool{}, loads: map[string]*loadState{}, retryAt: now, wakeAt: never,
	}
	c.membersChanged(now)
	return c
}

func (c *coordinator) membersChanged(now time.Duration) {
	c.must, c.hosts = nil, nil
	for i := range c.m.members {
		if o := &c.m.members[i]; c.m.canCoordinate(o) {
			c.must = append(c.must, o.Node)
		}
	}
	for n := range c.nodes { // the order does not matter
		if !c.m.isPresent(n) {
			delete(c.nodes, n)
		}
	}
	c.countLag()
	if c.lag > 0 { // a node that has joined may not know this coordinator, which may be Exiting
		c.retryAt = min(c.retryAt, now+c.m.cfg.RetryInterval)
	}
}

func (c *coordinator) isRequired(n identity.Node) bool {
	_, found := slices.BinarySearchFunc(c.must, n, identity.Node.Compare)
	return found
}

func (c *coordinator) isLagging(n identity.Node) bool {
	p := c.nodes[n]
	return p == nil || p.version != c.m.table.Version
}

func (c *coordinator) countLag() {
	c.lag = 0
	for _, n := range c.must {
		if c.isLagging(n) {
			c.lag++
		}
	}
}

func (c *coordinator) next() time.Duration { return min(c.retryAt, c.wakeAt) }

// receive handles the report of a node. Reports of a node may arrive in any order.
func (c *coordinator) receive(now time.Duration, from identity.Node, p *report) {
	old := c.nodes[from]
	switch {
	case !c.m.isPresent(from), old != nil && p.seq < old.seq:
		return
	case !p.declared && old == nil:
		c.send(from, nil)
		return
	case !p.declared:
		p.groups = old.groups
	case old == nil || !slices.Equal(old.groups, p.groups):
		c.hosts = nil
	}
	if old != nil && old.leaving != p.leaving {
		c.hosts = nil
	}
	to := &participant{p, map[Instance]running{}}
	for _, r := range p.running {
		to.running[r.Instance] = r
	}
	required := c.isRequired(from)
	if required && c.isLagging(from) {
		c.lag--
	}
	c.nodes[from] = to
	if required && c.isLagging(from) {
		c.lag++
	}
	if c.collecting && p.full && p.version.Compare(c.m.table.Version) > 0 {
		c.m.setTable(Table{p.version, p.table})
		c.countLag()
	}
	if from != c.m.cfg.Self {
		c.send(from, to)
	}
	if c.lag > 0 && c.retryAt == never {
		c.retryAt = now + c.m.cfg.RetryInterval
	}
}

// send sends the table to a node, nil for a node without a report.
func (c *coordinator) send(to identity.Node, p *participant) {
	t := &c.m.table
	u := &update{role: c.m.cfg.Role, base: t.Version, version: t.Version}
	if p != nil {
		u.ack, u.known = p.seq, true
		switch v := p.version; {
		case c.collecting || v == t.Version:
		case v.Compare(c.deltaFrom) >= 0 && v.Compare(t.Version) < 0 && (v.term() == t.Version.term() || v.Compare(c.merged) <= 0):
			u.base = v
			for _, g := range t.Groups {
				if g.Rev > v.Rev {
					u.rows = append(u.rows, g)
				}
			}
		default:
			u.base, u.rows = Version{}, t.Groups
		}
	}
	c.m.out.Send = append(c.m.out.Send, Message{to, encodeUpdate(u)})
}

// step makes the next change of the table, if it is possible, and returns whether it did.
func (c *coordinator) step(now time.Duration) bool {
	if now >= c.retryAt {
		c.retryAt = never
		for _, n := range c.must {
			if c.isLagging(n) && n != c.m.cfg.Self {
				c.send(n, c.nodes[n])
				c.retryAt = now + c.m.cfg.RetryInterval
			}
		}
		for _, n := range c.others() {
			c.send(n, c.nodes[n])
			c.retryAt = now + c.m.cfg.RetryInterval
		}
	}
	c.wakeAt = never
	if !c.m.Converged() || !c.m.canCoordinate(c.m.self) || c.m.preparing {
		return false
	}
	c.m.accepted = termOf(c.m.self)
	if c.collecting {
		for _, n := range c.must {
			if c.nodes[n] == nil {
				return false
			}
		}
		c.collecting, c.merged, c.deltaFrom = false, c.m.table.Version, Version{}
		c.publish(now, c.m.table.Groups)
		return true
	}
	if c.lag > 0 {
		return false
	}
	rows, changed := c.decide(now)
	if changed {
		c.publish(now, rows)
	}
	return changed
}

// others returns the nodes without the role that do not have the current table, sorted.
func (c *coordinator) others() (nodes []identity.Node) {
	for n, p := range c.nodes { // sorted below
		if p.version != c.m.table.Version && !c.isRequired(n) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	return nodes
}

// publish sends the next table to all nodes.
func (c *coordinator) publish(now time.Duration, rows []Group) {
	last := c.m.table.Version
	version := c.m.accepted
	version.Rev = last.Rev + 1
	if version.Compare(last) < 0 { // the last coordinator had the number of this one, which was assigned again
		if version.UpNumber = last.UpNumber; last.Node != version.Node {
			version.UpNumber++
		}
	}
	next := Table{version, rows}
	if slices.ContainsFunc(c.m.table.Groups, func(g Group) bool { return next.Find(g.Name) == nil }) {
		c.deltaFrom = version // an update cannot remove rows
	}
	c.m.setTable(next)
	c.m.changed(now)
	c.countLag()
	c.retryAt = now
}

// findHosts computes the hosts of each group.
func (c *coordinator) findHosts() {
	c.hosts = map[string]*hostSet{}
	for _, n := range c.must {
		p, o := c.nodes[n], membership.Lookup(c.m.members, n)
		if p == nil || o == nil {
			continue
		}
		for _, g := range p.groups {
			h := c.hosts[g.Name]
			if h == nil {
				h = &hostSet{}
				c.hosts[g.Name] = h
			}
			if !g.Hosts {
				continue
			}
			if h.oldest == nil || membership.CompareAge(o, h.oldest) < 0 {
				h.oldest, h.settings = o, g
			}
			if o.Status == identity.Up && !p.leaving {
				h.nodes = append(h.nodes, n)
			}
		}
	}
}

// decide returns the rows of the next table, and whether they differ.
func (c *coordinator) decide(now time.Duration) (rows []Group, changed bool) {
	if c.hosts == nil {
		c.findHosts()
	}
	old := c.m.table.Groups
	for _, g := range old {
		if c.hosts[g.Name] == nil && !slices.ContainsFunc(g.Slots, func(s Slot) bool { return !s.isVacant() }) {
			changed = true // no node takes part in the group
			continue
		}
		g.Slots = slices.Clone(g.Slots)
		rows = append(rows, g)
	}
	for name, h := range c.hosts { // sorted below
		if (&Table{Groups: old}).Find(name) == nil && h.oldest != nil && len(rows) < MaxGroups {
			rows = append(rows, Group{Name: name, Exclusive: h.settings.Exclusive})
		}
	}
	slices.SortFunc(rows, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	room := maxSlots
	for i := range rows {
		g := &rows[i]
		c.resize(now, g, room)
		room -= len(g.Slots)
		for nr := range g.Slots {
			if g.Exclusive {
				c.advanceExclusive(now, g, nr)
			} else {
				c.advance(g, nr)
			}
		}
		c.shrink(g)
	}
	c.place(rows)
	for i := range rows {
		g := &rows[i]
		was := (&Table{Groups: old}).Find(g.Name)
		if was == nil || was.Count != g.Count || was.Override != g.Override || was.Scaled != g.Scaled || !slices.Equal(was.Slots, g.Slots) {
			g.Rev, changed = c.m.table.Version.Rev+1, true
		}
	}
	clear(c.rescale)
	return rows, changed
}

// fit reports whether a node can run instances of a group.
func (c *coordinator) fit(g *Group, n identity.Node) bool {
	h := c.hosts[g.Name]
	if h == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(h.nodes, n, identity.Node.Compare)
	return found
}

// want returns the wanted number of instances of a group.
func (*coordinator) want(g *Group, h *hostSet) int {
	if g.Override > 0 {
		return g.Override
	}
	return min(max(h.settings.Min, g.Scaled), max(h.settings.Min, h.settings.Max))
}

// resize sets the number of instances.
func (c *coordinator) resize(now time.Duration, g *Group, room int) {
	if n, requested := c.rescale[g.Name]; requested {
		g.Override = n
	}
	h := c.hosts[g.Name]
	if h == nil || h.oldest == nil {
		return
	}
	c.scale(now, g, h)
	want := min(c.want(g, h), max(room, len(g.Slots)))
	delete(c.ending, g.Name)
	if g.Exclusive && want != g.Count {
		// Instances of different numbers must not run at the same time: they divide the work
		// differently.
		for nr := range g.Slots {
			g.Slots[nr].retire()
		}
		if slices.ContainsFunc(g.Slots, func(s Slot) bool { return !s.isVacant() }) {
			c.ending[g.Name] = true
			return
		}
		g.Slots = g.Slots[:min(len(g.Slots), want)]
	}
	g.Count = want
	for len(g.Slots) < want {
		g.Slots = append(g.Slots, Slot{})
	}
}

// scale sets the number of instances that the load requires.
func (c *coordinator) scale(now time.Duration, g *Group, h *hostSet) {
	if h.settings.Max <= h.settings.Min || g.Override > 0 {
		g.Scaled = 0
		delete(c.loads, g.Name)
		return
	}
	sum, n := 0, 0
	for nr, s := range g.Slots {
		if p := c.nodes[s.Node]; p != nil {
			sum += p.running[Instance{g.Name, nr}].load
			n++
		}
	}
	at := c.loads[g.Name]
	if at == nil {
		at = &loadState{}
		c.loads[g.Name] = at
	}
	if n == 0 || n != g.Count {
		*at = loadState{}
		return
	}
	mean := sum / n
	since := func(is bool, t *time.Duration) bool {
		switch {
		case !is:
			*t = 0
		case *t == 0:
			*t = max(now, 1)
		}
		return is && now-*t >= c.m.cfg.ScaleAfter
	}
	target := (sum + targetLoad - 1) / targetLoad
	tooHigh, tooLow := since(mean > highLoad, &at.high), since(mean < lowLoad && n > h.settings.Min, &at.low)
	switch {
	case tooHigh:
		g.Scaled = min(target, 2*n, h.settings.Max)
	case tooLow:
		g.Scaled = max(target, h.settings.Min)
	default:
		return
	}
	*at = loadState{}
}

// retire lets the instance of an exclusive slot end.
func (s *Slot) retire() {
	if s.Old.IsZero() {
		s.Node, s.Next, s.Old = identity.Node{}, identity.Node{}, cmp.Or(s.Node, s.Next)
	}
}

// advance advances the slot of an ordinary group. All nodes have the table with the slot.
func (c *coordinator) advance(g *Group, nr int) {
	s := &g.Slots[nr]
	for _, n := range []*identity.Node{&s.Node, &s.Next, &s.Old} {
		if !n.IsZero() && !c.m.isPresent(*n) {
			*n = identity.Node{}
		}
	}
	s.Old = identity.Node{} // all nodes have the table that names its successor
	if !s.Next.IsZero() && (!c.fit(g, s.Next) || nr >= g.Count) {
		s.Next = identity.Node{}
	}
	if p := c.nodes[s.Next]; p != nil && p.running[Instance{g.Name, nr}].ready {
		s.Node, s.Next, s.Old = s.Next, identity.Node{}, s.Node
	}
	if nr >= g.Count || !s.Node.IsZero() && s.Next.IsZero() && !c.fit(g, s.Node) && !c.hasHosts(g) {
		s.Node, s.Old = identity.Node{}, cmp.Or(s.Old, s.Node)
	}
}

// advanceExclusive advances the slot of an exclusive group. All nodes have the table with the slot.
func (c *coordinator) advanceExclusive(now time.Duration, g *Group, nr int) {
	s := &g.Slots[nr]
	if at := cmp.Or(s.Node, s.Next); !at.IsZero() && !c.fit(g, at) {
		s.retire()
		if c.m.isPresent(at) {
			return // the node stops the instance when it has this table
		}
	}
	switch {
	case !s.Old.IsZero():
		if c.ended(now, Instance{g.Name, nr}, s.Old) {
			s.Old = identity.Node{}
		}
	case !s.Next.IsZero():
		s.Node, s.Next = s.Next, identity.Node{} // all nodes know where the instance starts
	}
}

// ended reports whether an instance that has to end on a node has certainly ended.
func (c *coordinator) ended(now time.Duration, id Instance, on identity.Node) bool {
	if c.m.isPresent(on) {
		p := c.nodes[on]
		if p == nil || c.isLagging(on) {
			return false
		}
		_, runs := p.running[id]
		// The report may be older than this change of the slot, but not than the current table.
		g := c.m.table.Find(id.Group)
		return !runs && g != nil && id.Nr < len(g.Slots) && g.Slots[id.Nr].Old == on
	}
	if membership.Lookup(c.m.members, on) != nil {
		return false
	}
	at := c.m.endsAt(on)
	if now < at {
		c.wakeAt = min(c.wakeAt, at)
	}
	return now >= at
}

func (c *coordinator) hasHosts(g *Group) bool {
	h := c.hosts[g.Name]
	return h != nil && len(h.nodes) > 0
}

// shrink removes surplus slots that are vacant.
func (*coordinator) shrink(g *Group) {
	for n := len(g.Slots); n > g.Count && g.Slots[n-1].isVacant(); n-- {
		g.Slots = g.Slots[:n-1]
	}
}

// place chooses nodes for instances without one, and for instances of nodes that leave. If there are
// none, it evens out the distribution.
func (c *coordinator) place(rows []Group) {
	p := newPlacement(rows)
	busy := false
	for i := range rows {
		g := &rows[i]
		h := c.hosts[g.Name]
		if h == nil || len(h.nodes) == 0 {
			continue
		}
		own := assigned(g)
		for nr := range min(g.Count, len(g.Slots)) {
			s := &g.Slots[nr]
			busy = busy || !s.Next.IsZero() || !s.Old.IsZero()
			switch {
			case !s.Next.IsZero(), g.Exclusive && !s.isVacant(), c.ending[g.Name]:
				continue
			case s.Node.IsZero():
			case c.fit(g, s.Node):
				continue
			default:
				own[s.Node]--
				p.total[s.Node]--
			}
			s.Next = p.choose(h.nodes, own)
			busy = true
		}
	}
	if busy {
		return
	}
	for _, move := range p.rebalance(rows, func(row int) []identity.Node {
		if h := c.hosts[rows[row].Name]; h != nil {
			return h.nodes
		}
		return nil
	}) {
		if s := &rows[move.row].Slots[move.slot]; rows[move.row].Exclusive {
			s.retire()
		} else {
			s.Next = move.to
		}
	}
}
