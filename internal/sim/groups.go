// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/shardcore/groups"
	"github.com/refold-io/refold/internal/sim/env"
)

// kindGroups is the kind of the messages about tables of groups, as in package sharding.
const kindGroups link.Kind = 204

// groupSingleton is the prefix of the singletons that coordinate groups, as in package sharding.
const groupSingleton = "groups|"

// GroupPlan is a group of a simulation.
type GroupPlan struct {
	groups.Declaration

	Role string
	// Tolerate lets the group survive the failure of half of the nodes.
	Tolerate bool
}

// NewGroupsPlan returns the groups of a seed. Half of the seeds have none.
func NewGroupsPlan(seed uint64, names int) (all []GroupPlan) {
	r := rand.New(rand.NewPCG(seed, 0x6709b5)) //nolint:gosec // must be repeatable
	if r.IntN(2) == 0 {
		return nil
	}
	for i := range 1 + r.IntN(2) {
		g := GroupPlan{Declaration: groups.Declaration{Name: fmt.Sprint("group-", i), Min: 1 + r.IntN(min(names+2, 8))}}
		if r.IntN(2) == 0 {
			g.Role = shardRole
		}
		switch r.IntN(5) {
		case 0, 1:
			g.Exclusive = true
		case 2:
			g.Tolerate = true
		case 3:
			g.Max = g.Min + 1 + r.IntN(3)
		}
		g.Max = max(g.Min, g.Max)
		all = append(all, g)
	}
	return all
}

// grouping is the record of all groups of a cluster.
type grouping struct {
	workload

	plan   []GroupPlan
	roles  []string // with groups, sorted
	all    []*groupNode
	byNode map[groupAt]*groupNode
	runs   map[groupRun][]*groupInstance
	tables map[groupTable]string // contents by version
}

type groupAt struct {
	role string
	node identity.Node
}

// groupRun is an instance of a group of a role.
type groupRun struct {
	groups.Instance

	role string
}

type groupTable struct {
	groups.Version

	role string
}

func newGrouping(c *cluster, seed uint64, plan []GroupPlan) *grouping {
	a := &grouping{
		workload: newWorkload(c, seed, 0x6709b), plan: plan, byNode: map[groupAt]*groupNode{}, runs: map[groupRun][]*groupInstance{}, tables: map[groupTable]string{},
	}
	for _, g := range plan {
		if !slices.Contains(a.roles, g.Role) {
			a.roles = append(a.roles, g.Role)
		}
	}
	slices.Sort(a.roles)
	return a
}

func (a *grouping) begin() {
	if len(a.plan) == 0 {
		return
	}
	a.later(15*time.Second, a.rescale)
	a.c.coverage.expect("group", "table", "started", "stopped", "replaced", "rescaled", "scaled", "left in time", "left by force", "coordinator", "refused to rescale", "overlap after a pause")
	a.c.coverage.expect("checked", "groups-settle")
}

// groupNode is the groups of a role on a node: the counterpart of the shell in package sharding.
type groupNode struct {
	a           *grouping
	h           *host
	m           *groups.Machine
	role        string
	hosts       bool // the node has the role
	alarm       env.Alarm
	delays      delays
	view        groups.Members // as the machine knows it
	unconverged time.Duration  // the last time at which the membership had not converged
	updates     bool           // an update of the members is due
	starts      bool           // the program has started its groups
	running     map[groups.Instance]*groupInstance
	drained     func() // called when all instances have moved
	since       time.Duration
	gone        bool
}

// groupInstance is a run of an instance.
type groupInstance struct {
	g               *groupNode
	id              groupRun
	since           time.Duration
	ready, stopping bool
}

// host starts the groups of a node, some time after the node itself.
func (a *grouping) host(h *host) {
	for _, role := range a.roles {
		g := &groupNode{a: a, h: h, role: role, hosts: role == "" || !h.shards.proxy, running: map[groups.Instance]*groupInstance{}, since: a.w.Now()}
		g.m = groups.New(groups.Config{Self: h.p.Node(), Role: role, RetryInterval: 2 * time.Second, ScaleAfter: 30 * time.Second, RemovalMargin: h.m.RemovalMargin})
		h.groups = append(h.groups, g)
		a.all = append(a.all, g)
		a.byNode[groupAt{role, h.p.Node()}] = g
		g.after(a.between(0, 3*time.Second), func() {
			g.starts = true
			g.updateMembers()
		})
	}
}

func (g *groupNode) after(d time.Duration, f func()) {
	g.h.p.After(d, func() {
		if !g.gone {
			f()
		}
	})
}

// membersChanged passes the membership to the machine a moment later, as the loop of the shell does.
func (g *groupNode) membersChanged() {
	if g.updates || g.gone {
		return
	}
	g.updates = true
	g.after(time.Duration(g.a.rand.IntN(int(2*time.Millisecond))), g.updateMembers)
}

func (g *groupNode) updateMembers() {
	g.updates = false
	in := groups.Members{Suspended: g.h.m.Suspended(), Ended: g.h.m.Stopped()}
	if v := g.h.m.View(); !in.Ended {
		in.Members, in.Unreachable, in.Seen = v.Members, v.Unreachable, v.Seen
	}
	g.view = in
	g.step(in)
	if !g.m.Converged() {
		g.unconverged = g.a.w.Now()
	}
	if g.starts {
		g.declare()
	}
}

// declare passes the groups of the node to the machine. Their sizes may depend on the number of nodes.
func (g *groupNode) declare() { g.step(groups.Declare{Groups: g.declarations()}) }

func (g *groupNode) declarations() (all []groups.Declaration) {
	nodes := 0
	for _, m := range g.h.m.View().Members {
		if m.HasRole(g.role) && m.Status == identity.Up {
			nodes++
		}
	}
	for _, p := range g.a.plan {
		if p.Role != g.role {
			continue
		}
		d := p.Declaration
		d.Hosts = g.hosts
		if p.Tolerate && nodes > 0 {
			d.Min = max(d.Min, min(nodes/2, nodes-1)+1)
			d.Max = max(d.Min, d.Max)
		}
		all = append(all, d)
	}
	return all
}

func (g *groupNode) received(m env.Message) {
	if role, err := groups.MessageRole(m.Data); m.To != g.h.p.Node() || g.h.cut[m.From] || g.gone || err != nil || role != g.role {
		return
	}
	g.delays.deliver(g.h, g.a.rand, func() {
		if !g.gone {
			g.step(groups.Received{From: m.From, Data: m.Data})
		}
	})
}

func (g *groupNode) step(in groups.Input) {
	before, now := g.m.Table().Version, g.h.p.Now()
	e := g.m.Step(now, in)
	if e.Malformed != nil && !g.h.c.forging {
		g.h.violate("messages-are-readable", "a message about groups: %v", e.Malformed)
	}
	if e.Table {
		g.a.hit("group", "table")
		g.a.w.Logf("%v: table %v of role %q", g.h.p.Node(), g.m.Table(), g.role)
		sameTables(g, before)
		tablesInLockstep(g, before)
	}
	for _, id := range e.Stop {
		g.stop(id)
	}
	for _, s := range e.Start {
		g.start(s)
	}
	for _, m := range e.Send {
		if !g.h.cut[m.To] {
			g.h.p.Send(m.To, link.Data, kindGroups, m.Data)
		}
	}
	if g.drained != nil && g.m.Drained() {
		drainedHasNothing(g)
		g.a.hit("group", "left in time")
		then := g.drained
		g.drained = nil
		g.after(0, then)
	}
	g.alarm.Set(g.m.Next, g.h.p.Now, g.after, func() {
		g.reportLoads()
		g.step(groups.Tick{})
	})
}

// reportLoads reports a load that sometimes stays too high or too low for a while. At the end the load
// requires no change.
func (g *groupNode) reportLoads() {
	load := 600
	if phase := int(g.a.w.Now()/(50*time.Second)) % 3; !g.a.quiet {
		load = []int{950, 600, 100}[phase]
	}
	for _, id := range slices.SortedFunc(maps.Keys(g.running), compareGroupInstances) {
		g.step(groups.Load{Instance: id, Load: load})
	}
}

func compareGroupInstances(a, b groups.Instance) int {
	if a.Group != b.Group {
		return strings.Compare(a.Group, b.Group)
	}
	return a.Nr - b.Nr
}

func (g *groupNode) exclusive(name string) bool {
	return slices.ContainsFunc(g.a.plan, func(p GroupPlan) bool { return p.Name == name && p.Exclusive })
}

func (g *groupNode) start(s groups.Start) {
	id := groupRun{s.Instance, g.role}
	if g.running[s.Instance] != nil {
		g.h.violate("one-worker", "%v starts while it runs on the same node", s.Instance)
	}
	if g.h.m.Stopped() {
		g.h.violate("down-hosts-nothing", "the node has stopped but starts %v", s.Instance)
	}
	g.a.hit("group", "started")
	i := &groupInstance{g: g, id: id, since: g.a.w.Now()}
	g.running[s.Instance] = i
	g.a.runs[id] = append(g.a.runs[id], i)
	oneWorker(i)
	g.after(g.a.between(0, time.Second), func() {
		if g.running[s.Instance] == i && !i.stopping {
			i.ready = true
			g.step(groups.Ready{Instance: s.Instance})
		}
	})
}

// stop ends an instance, which takes some time.
func (g *groupNode) stop(id groups.Instance) {
	i := g.running[id]
	if i == nil || i.stopping {
		g.h.violate("instances-in-turn", "%v is stopped but does not run", id)
		return
	}
	i.stopping = true
	g.a.hit("group", "stopped")
	replacedBeforeItEnds(i)
	g.after(g.a.between(time.Millisecond, maxStopping), func() {
		if g.running[id] != i {
			return
		}
		i.end()
		g.step(groups.Ended{Instance: id})
		g.h.maybeEnd()
	})
}

func (i *groupInstance) end() {
	delete(i.g.running, i.id.Instance)
	i.g.a.runs[i.id] = filter(i.g.a.runs[i.id], func(other *groupInstance) bool { return other != i })
}

// end ends all instances with the process.
func (g *groupNode) end() {
	for _, i := range g.running { // the order does not matter
		i.end()
	}
	g.gone = true
}

// drain moves the instances to other nodes. It calls then when they have moved, or at a timeout.
func (g *groupNode) drain(then func()) {
	g.drained = then
	g.after(maxLeaving, func() {
		if f := g.drained; f != nil {
			g.drained = nil
			g.a.hit("group", "left by force")
			movesInTime(g)
			f()
		}
	})
	g.step(groups.Leave{})
}

// coordinate starts or stops the coordinator of a role when its singleton starts or ends.
func (h *host) coordinate(name string, start bool) {
	for _, g := range h.groups {
		if groupSingleton+g.role != name {
			continue
		}
		if start {
			g.a.hit("group", "coordinator")
			g.step(groups.StartCoordinator{})
		} else {
			g.step(groups.StopCoordinator{})
		}
	}
}

// rescale requests another number of instances of a group, as an operator does.
func (a *grouping) rescale() {
	p := a.plan[a.rand.IntN(len(a.plan))]
	count := a.rand.IntN(9)
	for _, g := range a.all {
		if g.gone || g.role != p.Role || !g.h.alive() || g.h.p.Paused() || g.m.Coordinator() != g.h.p.Node() {
			continue
		}
		if err := g.m.Rescale(p.Name, count); err != nil {
			a.hit("group", "refused to rescale")
			continue
		}
		a.hit("group", "rescaled")
		g.h.p.Do(func() { g.step(groups.Tick{}) })
	}
}

// stale reports whether the node is paused, or has resumed a moment ago and may run instances that
// other nodes have started.
func (i *groupInstance) stale() bool {
	p := i.g.h.p
	return p.Paused() || p.Resumed() > i.since && i.g.a.w.Now() <= p.Resumed()+overlap
}

// oneWorker checks that an exclusive instance runs once. Only a node that was paused for a long time
// may run a second one for a moment.
func oneWorker(i *groupInstance) {
	a := i.g.a
	if !i.g.exclusive(i.id.Group) || i.g.gone || !slices.Contains(a.runs[i.id], i) {
		return
	}
	for _, other := range a.runs[i.id] {
		switch {
		case other == i:
		case other.stale() || i.stale():
			a.hit("group", "overlap after a pause")
			a.w.After(overlap+time.Millisecond, func() {
				if slices.Contains(a.runs[i.id], other) && !other.g.h.p.Paused() && !i.g.h.p.Paused() {
					oneWorker(i)
				}
			})
		default:
			i.g.h.violate("one-worker", "%v starts while it runs on %v", i.id.Instance, other.g.h.p.Node())
		}
	}
}

// sameTables checks that a node never goes back to an earlier table, and that tables of one version
// are equal.
func sameTables(g *groupNode, before groups.Version) {
	t := g.m.Table()
	if t.Version.Compare(before) <= 0 && (g.hosts || t.Version.Node == before.Node) { // the number of a coordinator can be assigned again
		g.h.violate("tables-never-go-back", "its table of role %q changes from %v to %v", g.role, before, t.Version)
	}
	content, at := fmt.Sprint(t.Groups), groupTable{t.Version, g.role}
	if was, known := g.a.tables[at]; known && was != content {
		g.h.violate("tables-are-equal", "table %v of role %q has the rows %s, on another node %s", t.Version, g.role, content, was)
	}
	g.a.tables[at] = content
	for _, row := range t.Groups {
		if row.Scaled > 0 {
			g.a.hit("group", "scaled")
		}
	}
}

// tablesInLockstep checks that a coordinator makes the next table only if its membership has converged
// and every running member with the role has the table before.
func tablesInLockstep(g *groupNode, before groups.Version) {
	t := g.m.Table()
	// The first table of a coordinator has the rows of the last table that a node has.
	changed := slices.ContainsFunc(t.Groups, func(row groups.Group) bool { return row.Rev == t.Version.Rev })
	if t.Version.Node != g.h.p.Node() {
		return
	}
	if len(g.view.Unreachable) > 0 || slices.ContainsFunc(g.view.Members, func(m identity.Member) bool {
		return m.Status != identity.Exiting && m.Status != identity.Down && !slices.Contains(g.view.Seen, m.Node)
	}) {
		g.h.violate("tables-in-lockstep", "it makes table %v of role %q before the membership has converged", t.Version, g.role)
	}
	for _, m := range g.view.Members {
		peer := g.a.byNode[groupAt{g.role, m.Node}]
		if !m.HasRole(g.role) || peer == nil || peer == g || peer.gone || m.Status == identity.Down || m.UpNumber == identity.NeverUp {
			continue
		}
		if has := peer.m.Table().Version; changed && has.Compare(before) < 0 {
			g.h.violate("tables-in-lockstep", "it makes table %v of role %q, but %v has only %v", t.Version, g.role, m.Node, has)
		}
	}
}

// replacedBeforeItEnds counts the instances of an ordinary group that end when another node runs the
// instance.
func replacedBeforeItEnds(i *groupInstance) {
	if slices.ContainsFunc(i.g.a.runs[i.id], func(other *groupInstance) bool { return other != i && other.ready && !other.stopping }) {
		i.g.a.hit("group", "replaced")
	}
}

// drainedHasNothing checks that a node that leaves has no instances, and gets none: no table names it,
// except as the next node of an instance. A coordinator that made such a table did not know that the
// node leaves, and its table has not reached the node.
func drainedHasNothing(g *groupNode) {
	if len(g.running) > 0 {
		g.h.violate("leaves-without-instances", "it has no more instances, but %d run", len(g.running))
	}
	if g.h.m.Stopped() || !g.hosts || g.a.c.shuttingDown {
		return
	}
	for _, peer := range g.a.all {
		if peer.gone || peer.role != g.role || peer.m.Table().Version.Compare(g.m.Table().Version) < 0 {
			continue
		}
		if named(peer.m.Table(), g.h.p.Node()) {
			g.h.violate("leaves-without-instances", "it leaves, but the table of %v names it: %v", peer.h.p.Node(), peer.m.Table())
		}
	}
}

func named(t *groups.Table, n identity.Node) bool {
	return slices.ContainsFunc(t.Groups, func(row groups.Group) bool {
		return slices.ContainsFunc(row.Slots, func(s groups.Slot) bool { return s.Node == n || s.Old == n })
	})
}

// movesInTime checks that, without failures, all instances move from a leaving node in time, if the
// coordinator runs for long enough, all members take part, and another node can run the instances.
func movesInTime(g *groupNode) {
	a := g.a
	if !a.c.shard.plan.Calm || g.h.stopped != 0 {
		return
	}
	for _, h := range a.c.living() {
		i := h.instances[groupSingleton+g.role]
		if i == nil || i.stopping || a.w.Now() < i.since+enoughToLeave {
			continue
		}
		at := a.byNode[groupAt{g.role, h.p.Node()}]
		if at.m.Converged() && a.w.Now() >= at.unconverged+enoughToLeave && len(at.m.Missing()) == 0 && named(at.m.Table(), g.h.p.Node()) && a.takes(g) {
			g.h.violate("leaves-in-time", "the table of %v names it after %v: %v", h.p.Node(), maxLeaving, at.m.Table())
		}
	}
}

// takes reports whether another node can run the instances of a node.
func (a *grouping) takes(g *groupNode) bool {
	return slices.ContainsFunc(a.all, func(other *groupNode) bool {
		return other != g && other.role == g.role && other.hosts && !other.gone && other.h.up() && !other.h.regions.begun
	})
}

// finish checks that all nodes have the same tables at the end, and that each instance runs once, where
// the table says.
func (a *grouping) finish() {
	if len(a.plan) > 0 {
		a.c.converge("groups-settle", 4*time.Minute, a.unsettled)
	}
}

func (a *grouping) unsettled() string {
	for _, role := range a.roles {
		nodes := filter(a.all, func(g *groupNode) bool { return g.role == role && g.h.alive() })
		i := slices.IndexFunc(nodes, func(g *groupNode) bool { return g.m.Coordinator() == g.h.p.Node() })
		if i < 0 {
			return fmt.Sprintf("no node coordinates the groups of role %q", role)
		}
		if why := a.misplaced(nodes[i], nodes); why != "" {
			return why
		}
	}
	return ""
}

// misplaced returns a description of a node or an instance that does not match the table of the
// coordinator, or "".
func (a *grouping) misplaced(leader *groupNode, nodes []*groupNode) string {
	t := leader.m.Table()
	for _, g := range nodes {
		if v := g.m.Table().Version; v != t.Version {
			return fmt.Sprintf("%v has table %v of role %q, and %v has table %v", g.h.p.Node(), v, g.role, leader.h.p.Node(), t.Version)
		}
	}
	for _, d := range leader.declarations() {
		row := t.Find(d.Name)
		switch {
		case row == nil, row.Pending() > 0, len(row.Slots) != row.Count, row.Override > 0 && row.Count != row.Override, row.Override == 0 && (row.Count < d.Min || row.Count > d.Max):
			return fmt.Sprintf("%s with %d to %d instances has the row %+v, %v are missing", d.Name, d.Min, d.Max, row, leader.m.Missing())
		}
		count := map[identity.Node]int{}
		for _, g := range nodes {
			if g.hosts {
				count[g.h.p.Node()] = 0
			}
		}
		for nr, s := range row.Slots {
			count[s.Node]++
			runs := a.runs[groupRun{groups.Instance{Group: d.Name, Nr: nr}, leader.role}]
			if len(runs) != 1 || runs[0].g.h.p.Node() != s.Node || !runs[0].ready {
				return fmt.Sprintf("instance %d of %s is on %v and runs %d times", nr, d.Name, s.Node, len(runs))
			}
		}
		if counts := slices.Sorted(maps.Values(count)); counts[len(counts)-1]-counts[0] > 1 {
			return fmt.Sprintf("the instances of %s are not even: %v", d.Name, count)
		}
	}
	return ""
}
