// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groups_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/groups"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// simulate runs a small cluster with joins, leaves, crashes, partitions and a network that loses,
// repeats and delays messages.
func simulate(t *testing.T, seed uint64) {
	t.Helper()
	w := newWorld(t, seed)
	w.groups = []groups.Declaration{fixed("a", 2, false), fixed("b", 4, false), fixed("w", 5, true), fixed("x", 1, true)}
	for i := range 3 + w.rnd.IntN(4) {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.run(w.delay(20 * time.Second))
	w.lossy = true
	for range 12 {
		up := w.up()
		switch action := w.rnd.IntN(6); {
		case len(up) < 3 || action == 0 && len(up) < 8:
			w.join(fmt.Sprintf("n%d", len(w.order)))
		case action <= 1 && w.rnd.IntN(2) == 0:
			w.leave(up[w.rnd.IntN(len(up))])
		case action <= 1:
			w.dismiss(up[w.rnd.IntN(len(up))])
		case action == 2 && len(w.missing) == 0:
			w.lose(true, up[w.rnd.IntN(len(up))])
		case action == 3 && len(w.missing) == 0:
			w.lose(false, up[w.rnd.IntN(len(up))])
		case action == 4 && len(w.missing) == 0:
			w.flicker(up[w.rnd.IntN(len(up))])
		default:
			if w.leader != nil && w.leader.alive {
				_ = w.leader.m.Rescale("w", 3+w.rnd.IntN(4)) // it may be lost
				w.leader.step(groups.Tick{})
			}
		}
		w.run(w.delay(15 * time.Second))
	}
	w.run(30 * time.Second)
	w.lossy = false
	for len(w.up()) < 3 {
		w.join(fmt.Sprintf("n%d", len(w.order)))
	}
	w.await(5*time.Minute, "end of the leaving nodes", func() bool {
		for _, n := range w.order {
			if n.alive && n.leaving {
				return false
			}
		}
		return true
	})
	w.await(3*time.Minute, "table", func() bool {
		row := w.leaderTable().Find("w")
		return row != nil && row.Count == len(row.Slots) && w.settledAs(row.Count)
	})
}

func (w *world) leaderTable() *groups.Table {
	if w.leader == nil {
		return &groups.Table{}
	}
	return w.leader.m.Table()
}

// settledAs is settled after a change of the number of workers.
func (w *world) settledAs(count int) bool {
	for i := range w.groups {
		if w.groups[i].Name == "w" {
			w.groups[i].Min = min(w.groups[i].Min, count)
		}
	}
	return w.settled()
}

// TestSimulation checks in simulated clusters that an exclusive instance runs at most once, that
// the table changes only if the membership has converged and all nodes have the previous table, that
// a leaving node has no instance when it leaves, and that all instances run after the faults.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for seed := range effort.Count[uint64](50, 500, 20_000) {
		simulate(t, seed)
	}
}

// TestSimulationRepeats checks that a seed always has the same course.
func TestSimulationRepeats(t *testing.T) {
	t.Parallel()
	course := func() string {
		w := newWorld(t, 7)
		w.groups = []groups.Declaration{fixed("a", 3, false), fixed("w", 5, true)}
		for i := range 5 {
			w.join(fmt.Sprintf("n%d", i))
		}
		w.lossy = true
		w.run(20 * time.Second)
		w.lose(true, w.order[2])
		w.leave(w.order[1])
		w.run(time.Minute)
		return w.String()
	}
	if first, second := course(), course(); first != second {
		t.Errorf("first course: %s\nsecond course: %s", first, second)
	}
}

// TestRollingRestart restarts all nodes of a large cluster, several at a time. No instance may be
// missing at any time. The number of moves is compared with the number of instances that the
// restarted nodes had, which have to move.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	size := effort.Count(12, 40, 500)
	w := newWorld(t, 1)
	instances := 0
	for i := range max(size*2/5, 4) {
		g := fixed(fmt.Sprintf("group-%03d", i), 2+i%4, false)
		instances += g.Min
		w.groups = append(w.groups, g)
	}
	for i := range size {
		w.join(fmt.Sprintf("n%03d", i))
	}
	w.await(5*time.Minute, "table", w.settled)
	w.strict = true
	started, least := w.starts, 0
	width := max(size/50, 1)
	first := w.order[:size]
	for i := 0; i < size; i += width {
		for _, n := range first[i:min(i+width, size)] {
			least += len(n.running)
			w.leave(n)
		}
		w.await(10*time.Minute, "end of the leaving nodes", func() bool {
			for _, n := range first[i:min(i+width, size)] {
				if n.alive {
					return false
				}
			}
			return true
		})
		for _, n := range first[i:min(i+width, size)] {
			w.join(n.id.Name)
		}
		w.run(2 * time.Second)
	}
	w.await(5*time.Minute, "table", w.settled)
	moves := w.starts - started
	t.Logf("%d nodes, %d groups with %d instances: %d steps with a missing instance; %d moves, the minimum is %d (%.2f); %d tables",
		size, len(w.groups), instances, w.gaps, moves, least, float64(moves)/float64(least), w.changes)
	if w.gaps > 0 {
		t.Errorf("an instance was missing %d times, want none", w.gaps)
	}
	if 10*moves > 13*least {
		t.Errorf("%d instances moved, want at most 1.3 times %d", moves, least)
	}
	most := 0
	for _, n := range w.up() {
		most = max(most, len(n.running))
	}
	if limit := (instances+size-1)/size + 1; most > limit {
		t.Errorf("a node has %d instances, want at most %d", most, limit)
	}
}

// TestDismissedNodes checks that a node that an operator lets leave, and that is hence Exiting, leaves
// only after its instances have moved, without a gap and within the time-out of the phase in which they
// move. Its workers do not wait for the removal of the node.
func TestDismissedNodes(t *testing.T) {
	t.Parallel()
	for seed := range effort.Count[uint64](5, 30, 200) {
		w := newWorld(t, seed)
		w.groups = []groups.Declaration{fixed("a", 3, false), fixed("w", 6, true)}
		for i := range 4 {
			w.join(fmt.Sprintf("n%d", i))
		}
		w.await(time.Minute, "table", w.settled)
		w.strict = true
		for _, n := range w.order[:3] { // the coordinator is the first of them
			w.dismiss(n)
			w.await(12*time.Second, "end of the dismissed node", func() bool { return !n.alive })
			w.join(n.id.Name)
			w.await(time.Minute, "table", w.settled)
		}
		if w.gaps > 0 {
			t.Errorf("seed %d: an instance of the ordinary group was missing %d times, want none", seed, w.gaps)
		}
	}
}

// TestRollingRestartOfWorkers checks that exclusive instances keep their number and run at most once
// during a rolling restart of a small cluster.
func TestRollingRestartOfWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.groups = []groups.Declaration{fixed("a", 3, false), fixed("w", 10, true)}
	for i := range 4 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	w.strict = true
	for i, n := range w.order[:4] {
		w.leave(n)
		w.await(2*time.Minute, "end of the leaving node", func() bool { return !n.alive })
		w.join(fmt.Sprintf("n%d", i))
		w.run(10 * time.Second)
	}
	w.await(time.Minute, "table", w.settled)
	if w.gaps > 0 {
		t.Errorf("an instance of the ordinary group was missing %d times, want none", w.gaps)
	}
}

// FuzzReceive checks that no received bytes let a machine fail, or allocate far more memory than the
// message has.
func FuzzReceive(f *testing.F) {
	w := newWorld(f, 1)
	w.groups = []groups.Declaration{fixed("a", 2, false), fixed("w", 2, true)}
	for i := range 3 {
		w.join(fmt.Sprintf("n%d", i))
	}
	w.await(time.Minute, "table", w.settled)
	for _, n := range w.order {
		n.step(groups.Declare{Groups: w.groups})
		for _, m := range n.m.Step(w.now+time.Hour, groups.Tick{}).Send {
			f.Add(m.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		role, err := groups.MessageRole(data)
		if allocated := testing.AllocsPerRun(1, func() { _, _ = groups.MessageRole(data) }); allocated > 10 {
			t.Errorf("MessageRole of %d bytes makes %v allocations", len(data), allocated)
		}
		for _, to := range []identity.Node{w.order[0].id, w.order[1].id} {
			m := groups.New(groups.Config{Self: to, Role: role, RetryInterval: retry, ScaleAfter: retry, RemovalMargin: func(int) time.Duration { return margin }})
			m.Step(0, groups.Members{Members: w.truth})
			m.Step(0, groups.Declare{Groups: w.groups})
			if to == w.order[0].id {
				m.Step(0, groups.StartCoordinator{})
			}
			out := m.Step(time.Second, groups.Received{From: w.order[0].id, Data: data})
			if err != nil && out.Malformed == nil {
				t.Errorf("no error for a malformed message: %v", err)
			}
			m.Step(time.Minute, groups.Tick{})
		}
	})
}
