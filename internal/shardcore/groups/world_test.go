// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groups_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/groups"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	retry  = 2 * time.Second
	margin = 10 * time.Second
)

// event is a future call.
type event struct {
	at time.Duration
	nr int
	f  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].nr, q[j].nr)) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *queue) Push(e any) { *q = append(*q, e.(event)) } //nolint:errcheck // the queue holds events only

func (q *queue) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}

// instance is an instance that runs on a node.
type instance struct {
	ready, stopping bool
	nr              int // incarnation
}

// member is a node with its machine.
type member struct {
	w         *world
	id        identity.Node
	m         *groups.Machine
	alive     bool
	cut       bool // separated from the other nodes
	faulty    bool // crashes, or is separated for some time
	suspended bool
	leaving   bool
	exiting   bool // hands off its instances while it is Exiting
	left      bool
	running   map[groups.Instance]*instance
	view      groups.Members
	epoch     int
	timer     time.Duration
}

// world simulates the membership, the network and the instances of the nodes of a role. The
// membership is decided by an oracle; each node sees it after a delay of its own.
type world struct {
	testing.TB

	seed     uint64
	rnd      *rand.Rand
	now      time.Duration
	events   queue
	count    int
	nodes    map[identity.Node]*member
	order    []*member // in the order of joining
	truth    []identity.Member
	missing  []identity.Node
	epoch    int
	ups      int32
	leader   *member
	leaderAt time.Duration // when the next coordinator may start
	lossy    bool
	drop     func(from, to *member) bool // nil for none
	groups   []groups.Declaration
	strict   bool                     // no instance may be missing
	served   map[groups.Instance]bool // instances that have been ready
	ready    map[groups.Instance]int  // nodes on which an instance is ready
	runs     map[groups.Instance]int  // nodes on which an instance runs
	versions map[identity.Node]groups.Version
	starts   int
	changes  int
	gaps     int
	incarn   int
}

func newWorld(tb testing.TB, seed uint64) *world {
	tb.Helper()
	return &world{
		TB: tb, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), nodes: map[identity.Node]*member{},
		served: map[groups.Instance]bool{}, ready: map[groups.Instance]int{}, runs: map[groups.Instance]int{}, versions: map[identity.Node]groups.Version{},
	}
}

func (w *world) fail(format string, args ...any) {
	w.Helper()
	w.Fatalf("seed %d, %v: %s", w.seed, w.now, fmt.Sprintf(format, args...))
}

func (w *world) after(d time.Duration, f func()) {
	w.count++
	heap.Push(&w.events, event{w.now + d, w.count, f})
}

func (w *world) delay(most time.Duration) time.Duration {
	return time.Duration(w.rnd.Int64N(int64(most)))
}

// run advances the time.
func (w *world) run(d time.Duration) {
	until := w.now + d
	for len(w.events) > 0 && w.events[0].at <= until {
		e, _ := heap.Pop(&w.events).(event)
		w.now = e.at
		e.f()
	}
	w.now = until
}

// await advances the time until a condition is met.
func (w *world) await(most time.Duration, goal string, ok func() bool) {
	w.Helper()
	until := w.now + most
	for !ok() {
		if len(w.events) == 0 || w.events[0].at > until {
			w.fail("no %s within %v: %s", goal, most, w)
		}
		e, _ := heap.Pop(&w.events).(event)
		w.now = e.at
		e.f()
	}
}

// String describes the nodes.
func (w *world) String() (s string) {
	for _, n := range w.order {
		if n.alive {
			s += fmt.Sprintf("\n%v: status %v, table %v, missing %v, running %d", n.id, w.status(n.id), n.m.Table(), n.m.Missing(), len(n.running))
		}
	}
	return s
}

func (w *world) status(id identity.Node) identity.Status {
	for _, o := range w.truth {
		if o.Node == id {
			return o.Status
		}
	}
	return identity.Removed
}

// join adds a node that is Up.
func (w *world) join(name string) *member {
	id := identity.Node{Name: name, UID: uint64(len(w.order) + 1)}
	n := &member{
		w: w, id: id, alive: true, running: map[groups.Instance]*instance{}, timer: -1,
		m: groups.New(groups.Config{Self: id, RetryInterval: retry, ScaleAfter: 30 * time.Second, RemovalMargin: func(int) time.Duration { return margin }}),
	}
	w.nodes[id] = n
	w.order = append(w.order, n)
	w.ups++
	w.truth = append(slices.Clone(w.truth), identity.Member{Node: id, Status: identity.Up, UpNumber: w.ups})
	slices.SortFunc(w.truth, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	n.step(groups.Declare{Groups: w.groups})
	w.changed()
	w.oracle()
	return n
}

// change sets the status of a member. Removed removes it.
func (w *world) change(id identity.Node, status identity.Status) {
	w.truth = slices.Clone(w.truth)
	if status == identity.Removed {
		w.truth = slices.DeleteFunc(w.truth, func(o identity.Member) bool { return o.Node == id })
	}
	for i := range w.truth {
		if w.truth[i].Node == id {
			w.truth[i].Status = status
		}
	}
	w.changed()
}

// changed distributes the membership.
func (w *world) changed() {
	w.epoch++
	epoch, view := w.epoch, groups.Members{Members: w.truth, Unreachable: w.missing}
	seen := 0
	connected := slices.DeleteFunc(slices.Clone(w.order), func(n *member) bool { return !n.alive || n.cut || w.status(n.id) == identity.Removed })
	for _, n := range connected {
		w.after(w.delay(300*time.Millisecond), func() {
			if !n.alive || n.cut || n.epoch > epoch {
				return
			}
			n.epoch = epoch
			mine := view
			mine.Seen = []identity.Node{n.id}
			n.see(mine)
			if seen++; seen < len(connected) || w.epoch != epoch {
				return
			}
			var all []identity.Node
			for _, n := range connected {
				all = append(all, n.id)
			}
			slices.SortFunc(all, identity.Node.Compare)
			for _, n := range connected { // all have seen it
				w.after(w.delay(300*time.Millisecond), func() {
					if n.alive && !n.cut && n.epoch == epoch {
						mine := view
						mine.Seen = all
						n.see(mine)
					}
				})
			}
		})
	}
}

func (n *member) see(view groups.Members) {
	view.Suspended = n.suspended
	n.view = view
	n.step(view)
}

func (n *member) step(in groups.Input) {
	if !n.alive {
		return
	}
	w := n.w
	before := n.m.Table().Version
	out := n.m.Step(w.now, in)
	n.checkVersion(before)
	for _, id := range out.Stop {
		n.stop(id)
	}
	for _, start := range out.Start {
		n.start(start)
	}
	for _, message := range out.Send {
		w.send(n, message)
	}
	if out.Malformed != nil {
		w.fail("%v: %v", n.id, out.Malformed)
	}
	if at := n.m.Next(); at >= 0 && (n.timer < w.now || at < n.timer) && at < w.now+time.Hour {
		n.timer = max(at, w.now)
		w.after(n.timer-w.now, func() {
			if n.timer == w.now {
				n.timer = -1
				n.step(groups.Tick{})
			}
		})
	}
}

// checkVersion checks that only the coordinator of a converged membership makes a table, after all
// nodes have received the previous one.
func (n *member) checkVersion(before groups.Version) {
	w, now := n.w, n.m.Table().Version
	if now == before || now.Node != n.id {
		return
	}
	w.changes++
	// The first table of a coordinator has the rows of the last table that a node has.
	changed := slices.ContainsFunc(n.m.Table().Groups, func(g groups.Group) bool { return g.Rev == now.Rev })
	if n != w.leader {
		w.fail("%v makes a table and is no coordinator", n.id)
	}
	for _, o := range n.view.Members {
		if _, seen := slices.BinarySearchFunc(n.view.Seen, o.Node, identity.Node.Compare); !seen && o.Status != identity.Exiting && o.Status != identity.Down {
			w.fail("%v changes the table, and %v has not seen the membership", n.id, o.Node)
		}
		peer := w.nodes[o.Node]
		if has := peer.m.Table().Version; o.Node != n.id && peer.alive && changed && has.Compare(before) < 0 {
			w.fail("%v makes table %v, and %v has only %v", n.id, now, o.Node, has)
		}
	}
	if len(n.view.Unreachable) > 0 {
		w.fail("%v changes the table, and %v are unreachable", n.id, n.view.Unreachable)
	}
}

func (n *member) exclusive(name string) bool {
	i := slices.IndexFunc(n.w.groups, func(g groups.Declaration) bool { return g.Name == name })
	return n.w.groups[i].Exclusive
}

func (n *member) start(s groups.Start) {
	w := n.w
	if n.running[s.Instance] != nil {
		w.fail("%v starts %v twice", n.id, s.Instance)
	}
	w.starts++
	w.incarn++
	at := &instance{nr: w.incarn}
	n.running[s.Instance] = at
	if w.runs[s.Instance]++; n.exclusive(s.Group) && w.runs[s.Instance] > 1 {
		w.fail("%v starts %v, which runs on another node", n.id, s.Instance)
	}
	w.after(w.delay(time.Second), func() {
		if n.running[s.Instance] == at && !at.stopping {
			at.ready = true
			w.ready[s.Instance]++
			w.served[s.Instance] = true
			n.step(groups.Ready{Instance: s.Instance})
		}
	})
}

func (n *member) stop(id groups.Instance) {
	w, at := n.w, n.running[id]
	if at == nil || at.stopping {
		w.fail("%v stops %v, which does not run", n.id, id)
	}
	at.stopping = true
	n.lost(id, at)
	if w.strict && !n.exclusive(id.Group) {
		for _, peer := range w.up() {
			if g := peer.m.Table().Find(id.Group); g != nil && id.Nr < len(g.Slots) && g.Slots[id.Nr].Node == n.id {
				w.fail("%v stops %v, and %v sends messages to it", n.id, id, peer.id)
			}
		}
	}
	w.after(w.delay(time.Second), func() {
		if n.alive && n.running[id] == at {
			delete(n.running, id)
			w.runs[id]--
			n.step(groups.Ended{Instance: id})
		}
	})
}

// lost counts an instance that is no longer ready.
func (n *member) lost(id groups.Instance, at *instance) {
	w := n.w
	if !at.ready {
		return
	}
	at.ready = false
	if w.ready[id]--; w.strict && !n.exclusive(id.Group) && w.ready[id] == 0 {
		w.gaps++
	}
}

func (w *world) send(from *member, m groups.Message) {
	to := w.nodes[m.To]
	copies := 1
	if w.drop != nil && w.drop(from, to) {
		return
	}
	if w.lossy {
		copies = []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 2}[w.rnd.IntN(10)]
	}
	for range copies {
		delay := time.Millisecond + w.delay(50*time.Millisecond)
		if w.lossy && w.rnd.IntN(20) == 0 {
			delay += w.delay(8 * time.Second)
		}
		w.after(delay, func() {
			if to.alive && from.cut == to.cut && !from.left {
				to.step(groups.Received{From: from.id, Data: m.Data})
			}
		})
	}
}

// oracle starts and stops coordinators as cluster.Singleton does.
func (w *world) oracle() {
	if at := w.leader; at != nil && at.alive && !at.suspended && !at.left && (at.exiting || w.status(at.id) != identity.Exiting) {
		return
	}
	if at := w.leader; at != nil {
		if at.alive {
			at.step(groups.StopCoordinator{})
		} else if w.status(at.id) != identity.Removed {
			return // it may still run
		}
		w.leader = nil
		if w.status(at.id) == identity.Removed && !at.left {
			w.leaderAt = w.now + margin
		}
	}
	if w.now < w.leaderAt {
		w.after(w.leaderAt-w.now, w.oracle)
		return
	}
	var oldest *identity.Member
	for i := range w.truth {
		if o := &w.truth[i]; (o.Status == identity.Up || o.Status == identity.Leaving) && (oldest == nil || o.OlderThan(oldest)) {
			oldest = o
		}
	}
	if oldest == nil || !w.nodes[oldest.Node].alive || w.nodes[oldest.Node].suspended {
		return
	}
	w.leader = w.nodes[oldest.Node]
	w.leader.step(groups.StartCoordinator{})
}

// leave lets a node leave when its instances have moved.
func (w *world) leave(n *member) {
	n.leaving = true
	w.drain(n, func() {
		w.change(n.id, identity.Leaving)
		w.after(time.Second, func() { w.exit(n) })
	})
}

// dismiss lets a node leave on the request of an operator: its instances move while it is Exiting.
func (w *world) dismiss(n *member) {
	n.leaving = true
	w.change(n.id, identity.Leaving)
	var exit func()
	exit = func() {
		switch {
		case !n.alive:
		case len(w.missing) > 0:
			w.after(time.Second, exit)
		default:
			n.exiting = true
			w.change(n.id, identity.Exiting)
			w.after(w.delay(500*time.Millisecond), func() {
				w.drain(n, func() {
					n.exiting = false
					w.exit(n)
				})
			})
		}
	}
	w.after(time.Second, exit)
}

// drain moves the instances of a node, and then calls a function.
func (w *world) drain(n *member, then func()) {
	n.step(groups.Leave{})
	var poll func()
	poll = func() {
		switch {
		case !n.alive:
		case !n.m.Drained() || len(w.missing) > 0:
			w.after(100*time.Millisecond, poll)
		default:
			if len(n.running) > 0 {
				w.fail("%v leaves with %d instances", n.id, len(n.running))
			}
			if w.leader != nil && w.leader.named(n.id) {
				w.fail("%v leaves, and the coordinator has instances for it", n.id)
			}
			then()
		}
	}
	poll()
}

// named reports whether the table of a node names another one.
func (n *member) named(other identity.Node) bool {
	for _, g := range n.m.Table().Groups {
		for _, s := range g.Slots {
			if s.Node == other || s.Next == other || s.Old == other {
				return true
			}
		}
	}
	return false
}

func (w *world) exit(n *member) {
	if !n.alive {
		return
	}
	if len(w.missing) > 0 {
		w.after(time.Second, func() { w.exit(n) })
		return
	}
	w.change(n.id, identity.Exiting)
	w.oracle()
	w.after(time.Second, func() {
		if n.alive {
			n.left = true
			w.change(n.id, identity.Removed)
			n.end()
			w.oracle()
		}
	})
}

// end ends a node with all its instances.
func (n *member) end() {
	for _, id := range slices.SortedFunc(maps.Keys(n.running), func(a, b groups.Instance) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Nr, b.Nr)) }) {
		n.lost(id, n.running[id])
		n.w.runs[id]--
	}
	n.running, n.alive = map[groups.Instance]*instance{}, false
}

// lose lets nodes crash, or separates them from the others, until they are removed.
func (w *world) lose(crash bool, lost ...*member) {
	for _, n := range lost {
		n.faulty = true
		if crash {
			n.end()
			continue
		}
		n.cut = true
		w.after(5*time.Second+w.delay(9*time.Second), func() { // before the others may start its instances
			if !n.alive {
				return
			}
			n.suspended = true
			n.see(n.view)
			w.oracle()
			w.after(20*time.Second, n.end)
		})
	}
	w.after(2*time.Second, func() {
		for _, n := range lost {
			w.missing = append(slices.Clone(w.missing), n.id)
		}
		slices.SortFunc(w.missing, identity.Node.Compare)
		w.changed()
	})
	w.after(8*time.Second+w.delay(4*time.Second), func() {
		for _, n := range lost {
			w.change(n.id, identity.Down)
		}
		w.after(time.Second, func() {
			for _, n := range lost {
				w.missing = slices.DeleteFunc(slices.Clone(w.missing), func(o identity.Node) bool { return o == n.id })
				w.change(n.id, identity.Removed)
			}
			w.oracle()
		})
	})
}

// flicker separates a node for a short time.
func (w *world) flicker(n *member) {
	n.cut, n.faulty = true, true
	w.after(2*time.Second, func() {
		w.missing = append(slices.Clone(w.missing), n.id)
		slices.SortFunc(w.missing, identity.Node.Compare)
		w.changed()
	})
	w.after(6*time.Second, func() { n.faulty = false })
	w.after(4*time.Second, func() {
		n.cut = false
		w.missing = slices.DeleteFunc(slices.Clone(w.missing), func(o identity.Node) bool { return o == n.id })
		w.changed()
	})
	if w.rnd.IntN(2) == 0 {
		w.after(3*time.Second, func() {
			if n.alive {
				n.suspended = true
				n.see(n.view)
				w.oracle()
			}
		})
		w.after(5*time.Second, func() {
			if n.alive {
				n.suspended = false
				n.see(n.view)
				w.oracle()
			}
		})
	}
}

// up returns the nodes that take part and do not leave.
func (w *world) up() (nodes []*member) {
	for _, n := range w.order {
		if n.alive && !n.faulty && !n.leaving && w.status(n.id) == identity.Up && !slices.Contains(w.missing, n.id) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// settled reports whether each instance runs on exactly one node, and all nodes have this table.
func (w *world) settled() bool {
	if w.leader == nil {
		return false
	}
	t := w.leader.m.Table()
	for _, n := range w.up() {
		if n.m.Table().Version != t.Version {
			return false
		}
	}
	for _, g := range w.groups {
		row := t.Find(g.Name)
		if row == nil || row.Pending() > 0 || len(row.Slots) != row.Count || row.Count < g.Min {
			return false
		}
		for nr, s := range row.Slots {
			id := groups.Instance{Group: g.Name, Nr: nr}
			if at := w.nodes[s.Node]; w.runs[id] != 1 || w.ready[id] != 1 || at.running[id] == nil {
				return false
			}
		}
	}
	return true
}

// places returns the nodes of a group in the table of the coordinator.
func (w *world) places(group string) (nodes []identity.Node) {
	for _, s := range w.leader.m.Table().Find(group).Slots {
		nodes = append(nodes, s.Node)
	}
	return nodes
}

func fixed(name string, count int, exclusive bool) groups.Declaration {
	return groups.Declaration{Name: name, Hosts: true, Exclusive: exclusive, Min: count, Max: count}
}
