// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groups_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/groups"
)

// ordinals returns the positions of nodes in the sorted list of members, from 1.
func (w *world) ordinals(group string) (positions []int) {
	var sorted []identity.Node
	for _, o := range w.truth {
		sorted = append(sorted, o.Node)
	}
	for _, n := range w.places(group) {
		at, _ := slices.BinarySearchFunc(sorted, n, identity.Node.Compare)
		positions = append(positions, at+1)
	}
	return positions
}

// TestPlacement checks the example of the specification: instances take the next free places of the
// ring, and stay on their nodes when other nodes join between them.
func TestPlacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("A", 4, false), fixed("B", 3, false), fixed("C", 5, false)}
	for i := range 10 {
		w.join(fmt.Sprintf("n%02d0", i+1))
	}
	check := func(when string, want map[string][]int) {
		t.Helper()
		for name, positions := range want {
			if got := w.ordinals(name); !slices.Equal(got, positions) {
				t.Errorf("%s, %s is on the nodes %v, want %v", when, name, got, positions)
			}
		}
	}
	w.await(time.Minute, "table", w.settled)
	check("with ten nodes", map[string][]int{"A": {1, 2, 3, 4}, "B": {5, 6, 7}, "C": {8, 9, 10, 1, 2}})
	for _, after := range []int{2, 4, 5, 7, 8} {
		w.join(fmt.Sprintf("n%02d5", after))
	}
	w.run(time.Minute)
	w.await(time.Minute, "table", w.settled)
	check("with fifteen nodes", map[string][]int{"A": {1, 2, 4, 5}, "B": {7, 9, 10}, "C": {12, 14, 15, 1, 2}})
}

// TestFewNodes checks that a group has all its instances on few nodes, and spreads over nodes that
// join.
func TestFewNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("a", 4, false), fixed("w", 6, true)}
	w.join("n1")
	w.await(time.Minute, "table", w.settled)
	w.strict = true
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i+2))
	}
	w.run(30 * time.Second)
	w.await(time.Minute, "table", w.settled)
	for name, most := range map[string]int{"a": 1, "w": 2} {
		counts := map[identity.Node]int{}
		for _, n := range w.places(name) {
			if counts[n]++; counts[n] > most {
				t.Errorf("group %s: %v has %d instances, want at most %d", name, n, counts[n], most)
			}
		}
	}
	if w.gaps > 0 {
		t.Errorf("an instance was missing %d times, want none", w.gaps)
	}
}

// TestRescale checks that the instances of an exclusive group end before instances with another
// number start, and that a further request waits.
func TestRescale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("w", 6, true)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	leader := w.leader
	if err := leader.m.Rescale("w", 4); err != nil {
		t.Fatal(err)
	}
	leader.step(groups.Tick{})
	if err := leader.m.Rescale("w", 5); err == nil || !strings.Contains(err.Error(), groups.ErrRescaling.Error()) {
		t.Errorf("Rescale during a change: %v, want ErrRescaling", err)
	}
	old := len(w.places("w"))
	w.await(time.Minute, "end of the old instances", func() bool {
		ended := true
		for nr := range old {
			ended = ended && w.runs[groups.Instance{Group: "w", Nr: nr}] == 0
		}
		return ended
	})
	w.await(time.Minute, "table", func() bool { return len(w.places("w")) == 4 && leader.m.Table().Find("w").Pending() == 0 })
	w.crashLeader(t)
	if got := len(w.places("w")); got != 4 {
		t.Errorf("the next coordinator has %d instances, want 4", got)
	}
}

// crashLeader lets the coordinator crash and waits for the next one.
func (w *world) crashLeader(t *testing.T) {
	t.Helper()
	old := w.leader
	w.lose(true, old)
	w.await(2*time.Minute, "next coordinator", func() bool {
		return w.leader != nil && w.leader != old && w.leader.m.Table().Version.Node == w.leader.id && len(w.leader.m.Missing()) == 0
	})
}

// TestScale checks that the number of instances follows the load between its limits, and stays in a
// range of loads.
func TestScale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{{Name: "a", Hosts: true, Min: 2, Max: 5}}
	for i := range 6 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	load := func(each int) {
		t.Helper()
		for range 120 {
			for _, n := range w.order {
				for id := range n.running { // the order does not matter
					n.step(groups.Load{Instance: id, Load: each})
				}
			}
			w.run(time.Second)
		}
	}
	for _, step := range []struct{ load, want int }{{500, 2}, {900, 5}, {700, 5}, {420, 5}, {300, 2}, {0, 2}} {
		load(step.load)
		if got := len(w.places("a")); got != step.want {
			t.Errorf("with a load of %d: got %d instances, want %d", step.load, got, step.want)
		}
	}
}

// TestPreparedShutdown checks that nothing moves while the cluster prepares to stop.
func TestPreparedShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("a", 2, false), fixed("w", 2, true)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	for _, n := range w.order {
		w.change(n.id, identity.PreparingForShutdown)
	}
	w.run(10 * time.Second)
	starts := w.starts
	for _, n := range w.order {
		n.step(groups.Leave{})
	}
	w.await(10*time.Second, "end of all instances", func() bool {
		return !slices.ContainsFunc(w.order, func(n *member) bool { return !n.m.Drained() })
	})
	if w.starts != starts {
		t.Errorf("%d instances started, want none", w.starts-starts)
	}
}

// TestAllLeave checks that the last nodes leave although no node can take over their instances.
func TestAllLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("a", 2, false), fixed("w", 2, true)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	for _, n := range w.order {
		w.leave(n)
	}
	w.await(time.Minute, "end of all nodes", func() bool { return len(w.truth) == 0 })
}

// TestSenders checks that a node that cannot run instances receives the table, and gets none.
func TestSenders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("a", 3, false)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	sender := fixed("a", 3, false)
	sender.Hosts = false
	w.order[0].step(groups.Declare{Groups: []groups.Declaration{sender}})
	w.await(time.Minute, "table", w.settled)
	if got := w.places("a"); slices.Contains(got, w.order[0].id) {
		t.Errorf("instances are on %v, want none on %v", got, w.order[0].id)
	}
	if w.order[0].m.Table().Find("a") == nil {
		t.Error("the sender has no table")
	}
}

// TestYoungCoordinator checks that a node ignores the updates of a member that does not coordinate.
func TestYoungCoordinator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("w", 3, true)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	young, target := w.order[2], w.order[1]
	before := target.m.Table().Version
	w.now += time.Second
	out := young.m.Step(w.now, groups.StartCoordinator{}) // a second coordinator
	for range 3 {
		for _, m := range out.Send {
			target.m.Step(w.now, groups.Received{From: young.id, Data: m.Data})
		}
		w.now += retry
		out = young.m.Step(w.now, groups.Tick{})
	}
	if got := target.m.Table().Version; got != before || target.m.Coordinator() != w.order[0].id {
		t.Errorf("the node has table %v of %v, want %v", got, target.m.Coordinator(), before)
	}
}

// TestLastTableIsFound checks that the next coordinator continues with a table that only one node
// has.
func TestLastTableIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("g", 1, false)}
	for i := range 5 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	leader, only := w.leader, w.order[4]
	w.drop = func(from, to *member) bool { return from == leader && to != only }
	if err := leader.m.Rescale("g", 5); err != nil {
		t.Fatal(err)
	}
	leader.step(groups.Tick{})
	w.await(time.Minute, "table", func() bool { return only.m.Table().Find("g").Override == 5 })
	w.crashLeader(t)
	if got := w.leader.m.Table().Find("g").Override; got != 5 {
		t.Errorf("the next coordinator has the request for %d instances, want 5", got)
	}
}

// TestPlaceIsKnown checks that no exclusive instance starts on a node before the other nodes have
// its place. Otherwise a coordinator that does not know the place could start it a second time.
func TestPlaceIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("a", 1, true)}
	for i := range 5 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	leader, only := w.leader, w.order[3]
	w.groups = append(w.groups, fixed("w", 5, true))
	w.drop = func(from, to *member) bool { return from == leader && to != only }
	for _, n := range w.order {
		n.step(groups.Declare{Groups: w.groups})
	}
	w.run(10 * time.Second)
	if only.m.Table().Find("w") == nil {
		t.Fatalf("the table has not reached %v: %s", only.id, w)
	}
	for id, n := range w.runs {
		if id.Group == "w" && n > 0 {
			t.Errorf("%v runs, and not all nodes have its place", id)
		}
	}
	w.drop = nil
	w.await(time.Minute, "table", w.settled)
}

// TestOutdatedCoordinator checks that a node ignores the delayed update of a coordinator when the
// next one has started, although it changes the table that the node has.
func TestOutdatedCoordinator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("a", 1, true)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	first, second, target := w.order[0], w.order[1], w.order[2]
	first.step(groups.Tick{})
	if err := first.m.Rescale("a", 4); err != nil {
		t.Fatal(err)
	}
	late := first.m.Step(w.now, groups.Tick{}).Send
	first.step(groups.StopCoordinator{})
	w.change(first.id, identity.Exiting)
	w.run(time.Second)
	w.leader = second
	w.drop = func(from, to *member) bool { return from == target } // it has no table of the second yet
	second.step(groups.StartCoordinator{})
	w.run(time.Second)
	before := target.m.Table().Version
	if target.m.Coordinator() != second.id || before.Node != first.id {
		t.Fatalf("the node has the table %v and the coordinator %v", before, target.m.Coordinator())
	}
	for _, m := range late {
		if m.To == target.id {
			target.m.Step(w.now, groups.Received{From: first.id, Data: m.Data})
		}
	}
	if got := target.m.Table().Version; got != before {
		t.Errorf("the node accepted table %v of the first coordinator", got)
	}
}

// TestSuspendedNodeResumes checks that the coordinator does not count an instance as ended that a
// suspended node has stopped, and that starts again when the node resumes.
func TestSuspendedNodeResumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("w", 1, true), fixed("x", 3, false)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	w.join("n3") // the next place of worker 0
	w.await(time.Minute, "table", w.settled)
	n := w.nodes[w.places("w")[0]]
	n.suspended = true
	n.see(n.view)
	w.await(10*time.Second, "end of the worker", func() bool { return w.runs[groups.Instance{Group: "w"}] == 0 })
	w.run(time.Second) // the report arrives
	n.suspended = false
	n.see(n.view)
	if err := w.leader.m.Rescale("w", 2); err != nil {
		t.Fatal(err)
	}
	w.leader.step(groups.Tick{})
	w.await(time.Minute, "table", func() bool { return len(w.places("w")) == 2 && w.settled() })
	if got := w.places("w")[0]; got == n.id {
		t.Errorf("worker 0 is on %v again, so that this test shows nothing", got)
	}
}

// TestYoungCoordinatorWaits checks that a node that joins after the removal of another one, and
// becomes the coordinator, waits for the end of the removed node's workers.
func TestYoungCoordinatorWaits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		w := newWorld(t, seed)
		w.groups = []groups.Declaration{fixed("w", 2, true)}
		first, second := w.join("n0"), w.join("n1")
		w.await(time.Minute, "table", w.settled)
		w.lose(false, second)
		w.await(time.Minute, "removal", func() bool { return w.status(second.id) == identity.Removed })
		w.join("n2")
		w.run(time.Second)
		w.leave(first)
		w.run(10 * time.Second)
		w.await(time.Minute, "table", w.settled)
	}
}

// TestLeaveIsKnown checks that a node without instances does not leave before the coordinator knows
// of it, and hence before the coordinator stops choosing the node.
func TestLeaveIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.groups = []groups.Declaration{fixed("a", 1, false)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	n := w.order[2]
	w.drop = func(from, to *member) bool { return from == n || to == n }
	n.step(groups.Leave{})
	w.run(5 * time.Second)
	if n.m.Drained() {
		t.Error("the node leaves, and the coordinator may choose it")
	}
	w.drop = nil
	w.await(10*time.Second, "leave", n.m.Drained)
}

// TestStartAndStopInOneStep checks that a step whose first table starts an instance and whose second
// table ends it does neither. The driver stops instances before it starts others, so such an instance
// would run without an end.
func TestStartAndStopInOneStep(t *testing.T) {
	t.Parallel()
	self := identity.Node{Name: "a", UID: 1}
	m := groups.New(groups.Config{Self: self, RetryInterval: retry, ScaleAfter: time.Minute, RemovalMargin: func(int) time.Duration { return margin }})
	view := groups.Members{Members: []identity.Member{{Node: self, Status: identity.Up, UpNumber: 1}}, Seen: []identity.Node{self}}
	m.Step(0, groups.Declare{Groups: []groups.Declaration{fixed("w", 1, true)}})
	m.Step(0, groups.StartCoordinator{})
	id := groups.Instance{Group: "w"}
	if out := m.Step(0, view); len(out.Start) != 1 || out.Start[0].Instance != id {
		t.Fatalf("the first step starts %v, want %v", out.Start, id)
	}
	suspended := view
	suspended.Suspended = true
	if out := m.Step(time.Second, suspended); !slices.Equal(out.Stop, []groups.Instance{id}) {
		t.Fatalf("the suspended node stops %v, want %v", out.Stop, id)
	}
	m.Step(time.Second, groups.Ended{Instance: id})
	if err := m.Rescale("w", 2); err != nil { // the instance has to end before there are two
		t.Fatal(err)
	}
	starts := m.Step(2*time.Second, view)
	if len(starts.Stop) != 0 {
		t.Errorf("the step stops %v, which does not run yet", starts.Stop)
	}
	running := map[int]bool{}
	for _, s := range starts.Start {
		running[s.Nr] = s.Count == 2 && !running[s.Nr]
	}
	if !maps.Equal(running, map[int]bool{0: true, 1: true}) {
		t.Errorf("the step starts %v, want the two instances of the next table", starts.Start)
	}
}

// TestRepeatedUpNumber checks that the tables of a coordinator reach all nodes although it has the
// number of the last coordinator. The number is assigned again if the last node with the role was
// removed, and the members without the role have lower numbers.
func TestRepeatedUpNumber(t *testing.T) {
	t.Parallel()
	node := func(name string, uid uint64, up int32, roles ...string) identity.Member {
		return identity.Member{Node: identity.Node{Name: name, UID: uid}, Status: identity.Up, UpNumber: up, Roles: roles}
	}
	proxy, first, next := node("p", 1, 1), node("z", 2, 2, "r"), node("a", 3, 2, "r")
	machines := map[identity.Node]*groups.Machine{}
	declare := fixed("g", 1, false)
	now := time.Duration(0)
	var step func(n identity.Node, in groups.Input)
	step = func(n identity.Node, in groups.Input) {
		for _, message := range machines[n].Step(now, in).Send {
			if machines[message.To] != nil {
				step(message.To, groups.Received{From: n, Data: message.Data})
			}
		}
	}
	for _, o := range []identity.Member{proxy, first, next} {
		machines[o.Node] = groups.New(groups.Config{Self: o.Node, Role: "r", RetryInterval: retry, ScaleAfter: time.Minute, RemovalMargin: func(int) time.Duration { return margin }})
		declare.Hosts = o.HasRole("r")
		step(o.Node, groups.Declare{Groups: []groups.Declaration{declare}})
	}
	live := func(lead identity.Member) {
		all := []identity.Member{proxy, lead}
		slices.SortFunc(all, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
		seen := []identity.Node{all[0].Node, all[1].Node}
		step(proxy.Node, groups.Members{Members: all, Seen: seen})
		step(lead.Node, groups.Members{Members: all, Seen: seen})
		step(lead.Node, groups.StartCoordinator{})
		for range 10 {
			now += refresh
			step(proxy.Node, groups.Tick{})
			step(lead.Node, groups.Tick{})
			step(lead.Node, groups.Ready{Instance: groups.Instance{Group: "g"}})
		}
		table := machines[proxy.Node].Table()
		if want := machines[lead.Node].Table().Version; table.Version != want || want.Node != lead.Node {
			t.Fatalf("the proxy has table %v, want %v", table, want)
		}
		if g := table.Find("g"); g == nil || len(g.Slots) != 1 || g.Slots[0].Node != lead.Node {
			t.Errorf("the proxy has table %v, want one that names %v", table, lead.Node)
		}
	}
	live(first)
	delete(machines, first.Node)
	live(next)
}

// refresh is at least the time between two reports of a node without the role.
const refresh = 5 * retry
