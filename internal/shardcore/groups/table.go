// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"cmp"
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
)

// Limits of a table.
const (
	MaxName      = 255     // bytes of the name of a group
	MaxGroups    = 1000    // groups of a role
	MaxInstances = 1000    // instances of a group
	maxSlots     = 100_000 // instances of all groups of a role
	maxNodes     = 20_000  // nodes in a message
	maxBytes     = 16 << 20
)

// Version orders the tables of a role. UpNumber and Node identify the coordinator that made the
// table: later coordinators became Up later. Rev counts the changes of all coordinators.
type Version struct {
	UpNumber uint64
	Node     identity.Node
	Rev      uint64
}

// Compare orders versions.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.UpNumber, w.UpNumber), v.Node.Compare(w.Node), cmp.Compare(v.Rev, w.Rev))
}

// term returns the version without its revision.
func (v Version) term() Version { return Version{UpNumber: v.UpNumber, Node: v.Node} }

// Table maps each group to the nodes of its instances. A Table is immutable.
type Table struct {
	Version Version
	Groups  []Group // sorted by name
}

// Group is a row of a table.
type Group struct {
	Name string
	// Exclusive reports that each instance runs at most once in the cluster.
	Exclusive bool
	// Rev is the revision of the last change of the row.
	Rev uint64
	// Count is the number of instances. Slots has more elements while surplus instances end.
	Count int
	// Override replaces the configured number of instances, unless it is 0. Scaled is the number
	// that the load requires.
	Override, Scaled int
	// Slots are the instances in the order of their numbers.
	Slots []Slot
}

// Slot is the place of an instance. A zero node stands for none.
//
// A member of an ordinary group moves from Node to Next: both run it until Next is ready. Then Next
// becomes Node, and Node becomes Old, which runs it until all nodes have the table with the change.
//
// An exclusive instance runs on Node only. It starts when all nodes have the table that names Next.
// To move, Node becomes Old. The slot is vacant when Old has confirmed the end of the instance.
type Slot struct {
	Node, Next, Old identity.Node
}

func (s *Slot) isVacant() bool { return s.Node.IsZero() && s.Next.IsZero() && s.Old.IsZero() }

// Find returns the row of a group, nil if there is none.
func (t *Table) Find(name string) *Group {
	i, found := slices.BinarySearchFunc(t.Groups, name, func(g Group, name string) int { return strings.Compare(g.Name, name) })
	if !found {
		return nil
	}
	return &t.Groups[i]
}

// Pending returns the number of instances that are placed, moving or ending.
func (g *Group) Pending() (n int) {
	for _, s := range g.Slots {
		if s.Node.IsZero() || !s.Next.IsZero() || !s.Old.IsZero() {
			n++
		}
	}
	return n
}

// Instance is an instance of a group.
type Instance struct {
	Group string
	Nr    int
}

func compareInstances(a, b Instance) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), cmp.Compare(a.Nr, b.Nr))
}

// runs reports whether a node runs the instance of a slot.
func (g *Group) runs(s *Slot, on identity.Node) bool {
	return s.Node == on || !g.Exclusive && (s.Next == on || s.Old == on)
}

// names reports whether a table names a node.
func (t *Table) names(n identity.Node) bool {
	for i := range t.Groups {
		for _, s := range t.Groups[i].Slots {
			if s.Node == n || s.Next == n || s.Old == n {
				return true
			}
		}
	}
	return false
}

// merge returns the table after an update: the rows of the update replace those of t.
func (t *Table) merge(version Version, rows []Group) Table {
	all := slices.Clone(t.Groups)
	for _, row := range rows {
		i, found := slices.BinarySearchFunc(all, row.Name, func(g Group, name string) int { return strings.Compare(g.Name, name) })
		if found {
			all[i] = row
		} else {
			all = slices.Insert(all, i, row)
		}
	}
	return Table{version, all}
}

// placement chooses nodes for instances.
type placement struct {
	total  map[identity.Node]int // instances of all groups
	cursor identity.Node         // the last choice: the search continues after it
}

func newPlacement(rows []Group) *placement {
	p := &placement{total: map[identity.Node]int{}}
	for i := range rows {
		for n, count := range assigned(&rows[i]) { // the order does not matter
			p.total[n] += count
		}
	}
	return p
}

// assigned counts the instances of a group on each node, after all pending moves.
func assigned(g *Group) map[identity.Node]int {
	count := map[identity.Node]int{}
	for i, s := range g.Slots {
		if i >= g.Count {
			break
		}
		if at := cmp.Or(s.Next, s.Node); !at.IsZero() {
			count[at]++
		}
	}
	return count
}

// choose returns the host for another instance of a group: a host with the fewest instances of the
// group, among these one with the fewest instances at all, and among these the next one on the ring
// of the sorted hosts. The argument own counts the instances of the group.
func (p *placement) choose(hosts []identity.Node, own map[identity.Node]int) identity.Node {
	if len(hosts) == 0 {
		return identity.Node{}
	}
	start, found := slices.BinarySearchFunc(hosts, p.cursor, identity.Node.Compare)
	if found {
		start++
	}
	best := hosts[start%len(hosts)]
	for i := range hosts {
		n := hosts[(start+i)%len(hosts)]
		if cmp.Or(cmp.Compare(own[n], own[best]), cmp.Compare(p.total[n], p.total[best])) < 0 {
			best = n
		}
	}
	own[best]++
	p.total[best]++
	p.cursor = best
	return best
}

// move is a change of place of an instance.
type move struct {
	row, slot int
	to        identity.Node
}

// rebalance returns moves for an even distribution. Each group is spread over its hosts. Beyond
// that, a node is relieved only if it has at least two instances more than the mean, rounded up: a
// distribution that is nearly even stays.
func (p *placement) rebalance(rows []Group, hosts func(row int) []identity.Node) (moves []move) {
	moved := map[[2]int]bool{}
	shift := func(row int, own map[identity.Node]int, from, to identity.Node) bool {
		g := &rows[row]
		for i, s := range g.Slots {
			if key := [2]int{row, i}; i < g.Count && s.Node == from && s.Next.IsZero() && s.Old.IsZero() && !moved[key] {
				moved[key] = true
				moves = append(moves, move{row, i, to})
				own[from]--
				own[to]++
				p.total[from]--
				p.total[to]++
				return true
			}
		}
		return false
	}
	most := func(hosts []identity.Node, count map[identity.Node]int) identity.Node {
		return slices.MaxFunc(hosts, func(a, b identity.Node) int {
			return cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(p.total[a], p.total[b]))
		})
	}
	least := func(hosts []identity.Node, count map[identity.Node]int) identity.Node {
		return slices.MinFunc(hosts, func(a, b identity.Node) int {
			return cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(p.total[a], p.total[b]))
		})
	}
	for row := range rows {
		on := hosts(row)
		if len(on) < 2 {
			continue
		}
		own := assigned(&rows[row])
		for {
			from, to := most(on, own), least(on, own)
			if own[from]-own[to] < 2 || !shift(row, own, from, to) {
				break
			}
		}
	}
	for row := range rows {
		on := hosts(row)
		if len(on) < 2 {
			continue
		}
		sum := 0
		for _, n := range on {
			sum += p.total[n]
		}
		limit := (sum+len(on)-1)/len(on) + 1
		own := assigned(&rows[row])
		for range rows[row].Count {
			busy := slices.DeleteFunc(slices.Clone(on), func(n identity.Node) bool { return own[n] == 0 || p.total[n] <= limit })
			if len(busy) == 0 {
				break
			}
			from := slices.MaxFunc(busy, func(a, b identity.Node) int { return cmp.Compare(p.total[a], p.total[b]) })
			free := slices.DeleteFunc(slices.Clone(on), func(n identity.Node) bool { return own[n] >= own[from] || p.total[n]+2 > p.total[from] })
			if len(free) == 0 {
				break
			}
			to := slices.MinFunc(free, func(a, b identity.Node) int { return cmp.Compare(p.total[a], p.total[b]) })
			if !shift(row, own, from, to) {
				break
			}
		}
	}
	return moves
}
