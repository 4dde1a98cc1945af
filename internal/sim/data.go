// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/replication"
)

// data is the replicated data of a cluster, and what is known about it from outside: what was
// asked for, what was answered, and who holds what.
type data struct {
	aside

	plan   DataPlan
	all    []*replicator // there ever were
	byNode map[identity.Node]*replicator
	disks  map[string]*disk // by name of the node
	views  map[string]*view

	keys     []*datum // there ever were
	byKey    map[string]*datum
	current  map[kind]*datum // that is written
	requests uint64          // the last one
	acks     uint64          // the last acknowledgement or answer
	serial   int             // of what is unique
	held     []*holders      // what all had at times
	looks    int
	pruned   map[identity.Node]bool // of whom somebody has taken over what was left
}

func newData(c *cluster, seed uint64, plan DataPlan) *data {
	return &data{
		aside: newAside(c, seed, 0xda7a), plan: plan, byNode: map[identity.Node]*replicator{}, disks: map[string]*disk{}, views: map[string]*view{},
		byKey: map[string]*datum{}, current: map[kind]*datum{}, pruned: map[identity.Node]bool{},
	}
}

// begin lets clients work.
func (d *data) begin() {
	d.later(d.plan.Pace, d.work)
	d.later(4*time.Second, d.look)
	d.later(20*time.Second, d.diskTrouble)
}

// view is who counts in a quorum, in the eyes of one of them.
type view struct {
	nodes []identity.Node // sorted
	gone  map[*view]int   // how many of them are not in another one
}

func (v *view) missingIn(other *view) int {
	n, known := v.gone[other]
	if !known {
		for _, m := range v.nodes {
			if _, found := slices.BinarySearchFunc(other.nodes, m, identity.Node.Compare); !found {
				n++
			}
		}
		v.gone[other] = n
	}
	return n
}

// view returns who counts for a level, as the node's membership says.
func (d *data) view(r *replicator, l replication.Level) *view {
	self := r.h.p.Node()
	nodes := []identity.Node{self}
	for _, m := range r.h.m.Gossip().Members() {
		switch {
		case m.Node == self && (m.Status == membership.Joining || m.Status == membership.WeaklyUp) && (l.Kind == replication.Majority || l.Kind == replication.MajorityPlus):
			nodes = slices.DeleteFunc(nodes, func(n identity.Node) bool { return n == self }) // it is no part of a majority yet
		case m.Node == self:
		case m.Status == membership.Exiting && (l.Kind == replication.All || l.Kind == replication.MajorityPlus):
		case m.Status == membership.Up, m.Status == membership.Leaving, m.Status == membership.Exiting:
			nodes = append(nodes, m.Node)
		}
	}
	slices.SortFunc(nodes, identity.Node.Compare)
	var name strings.Builder
	for _, n := range nodes {
		name.WriteString(n.String())
		name.WriteByte(' ')
	}
	v := d.views[name.String()]
	if v == nil {
		v = &view{nodes: nodes, gone: map[*view]int{}}
		d.views[name.String()] = v
	}
	return v
}

// needed is how many of n replicas a level asks for, counted in another way than the protocol does.
func needed(l replication.Level, n int) int {
	majority := 1
	for 2*majority <= n {
		majority++
	}
	switch l.Kind {
	case replication.Count:
		return l.N
	case replication.All:
		return n
	case replication.MajorityPlus:
		majority += l.N
	case replication.Local:
		return 1
	case replication.Majority:
	}
	if majority < l.MinCap {
		majority = l.MinCap
	}
	if majority > n {
		majority = n
	}
	return majority
}

// living returns the replicators of living nodes that have loaded what is on their disks.
func (d *data) living() []*replicator {
	var living []*replicator
	for _, r := range d.all {
		if r.serves() {
			living = append(living, r)
		}
	}
	return living
}

// holders returns those of them that hold data: members, and who was told to change something. While there are no members there are none: what
// somebody has who never came in, from the disk of another process of its name, may be pruned by those that come together without it.
func (d *data) holders() []*replicator {
	member := func(r *replicator) bool { return r.h.m.Member() }
	all := slices.DeleteFunc(d.living(), func(r *replicator) bool { return !member(r) && !r.wrote })
	if !slices.ContainsFunc(all, member) {
		return nil
	}
	return all
}
