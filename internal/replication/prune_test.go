// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

func pruningWorld(t *testing.T, n int) *world {
	t.Helper()
	return newWorld(t, 1, replication.Config{
		PruneInterval: 5 * time.Second, PruneAfter: 30 * time.Second, MarkerTTL: 5 * time.Minute, GossipInterval: time.Second,
	}, n)
}

// leave removes a node.
func (w *world) leave(h *host) {
	h.ended = true
	w.set(h.self, identity.Removed)
	w.sendMembers()
}

func holdsHistory(h *host, key string, of *host) bool { return value(h, key).NeedsPruning(of.self) }

// The history of a removed node is moved after all nodes have seen the marker, and the value stays
// the same.
func TestPrune(t *testing.T) {
	t.Parallel()
	w := pruningWorld(t, 4)
	a, gone := w.hosts[0], w.hosts[3]
	for _, h := range w.hosts {
		w.wait(h, h.add("visits", all, 10))
		w.wait(h, h.put("set", all, h.self.Name))
	}
	w.leave(gone)
	w.run(29 * time.Second)
	if !holdsHistory(a, "visits", gone) {
		t.Error("the history was pruned too early")
	}
	w.run(45 * time.Second)
	for _, h := range w.hosts[:3] {
		if holdsHistory(h, "visits", gone) || holdsHistory(h, "set", gone) {
			t.Errorf("%v still has history of the removed node", h.self)
		}
		if h.show("visits") != "40" || h.show("set") != "n1 n2 n3 n4" {
			t.Errorf("%v has %s, %s, want 40 and n1 n2 n3 n4", h.self, h.show("visits"), h.show("set"))
		}
	}
	if c := a.m.Counters(); c.Initiated != 2 || c.Pruned != 2 {
		t.Errorf("the leader began %d prunings and completed %d, want 2 and 2", c.Initiated, c.Pruned)
	}
	w.run(6 * time.Minute)
	w.converge(time.Minute)
	if a.m.Counters().Cleared != 2 {
		t.Errorf("%d markers were removed, want 2", a.m.Counters().Cleared)
	}
}

// While a node is unreachable, nothing is pruned and the time does not count for PruneAfter.
func TestPruneWaitsWhileUnreachable(t *testing.T) {
	t.Parallel()
	w := pruningWorld(t, 4)
	a, unreachable, gone := w.hosts[0], w.hosts[2], w.hosts[3]
	w.wait(gone, gone.add("visits", all, 10))
	w.cut = func(x, y *host) bool { return x == unreachable || y == unreachable }
	w.leave(gone)
	w.run(5 * time.Minute)
	if !holdsHistory(a, "visits", gone) || a.m.Counters().Initiated != 0 {
		t.Error("the history was pruned while a node was unreachable")
	}
	w.cut = nil
	w.sendMembers()
	w.run(20 * time.Second)
	if a.m.Counters().Initiated != 0 {
		t.Error("the time of unreachability counted for PruneAfter")
	}
	w.run(time.Minute)
	if holdsHistory(unreachable, "visits", gone) || unreachable.show("visits") != "10" {
		t.Errorf("after the partition, the node has %s, want 10", unreachable.show("visits"))
	}
}

// History that arrives after it was moved is not counted again. The test sends an old value to the
// new owner. Then it sends a delta of the new owner to a node that has not received the moved
// history.
func TestLateHistoryAfterPruning(t *testing.T) {
	t.Parallel()
	w := pruningWorld(t, 3)
	a, b, gone := w.hosts[0], w.hosts[1], w.hosts[2]
	for _, h := range w.hosts {
		w.wait(h, h.add("visits", all, 10))
	}
	late := replication.Entry{Key: "visits", Value: must(value(a, "visits").AppendBinary(nil))}
	w.leave(gone)
	w.run(10 * time.Second)
	lagging := w.start("n9", nil) // has the earlier changes and receives no further messages
	w.set(lagging.self, identity.Joining)
	w.sendMembers()
	lagging.step(received{From: a.self, Data: replication.AppendMessage(nil, replication.Write{Entry: late})})
	w.cut = func(x, y *host) bool { return x == lagging || y == lagging }
	for _, h := range []*host{a, b} {
		h.step(replication.Members{All: w.members})
	}
	w.run(time.Minute)
	if holdsHistory(a, "visits", gone) || lagging.show("visits") != "30" {
		t.Fatalf("after pruning, the node has %s, want 30", lagging.show("visits"))
	}
	a.step(received{From: b.self, Data: replication.AppendMessage(nil, replication.Write{Entry: late})})
	if a.show("visits") != "30" {
		t.Errorf("after a late write, a has %s, want 30", a.show("visits"))
	}
	w.run(time.Second)
	w.cut, w.keep = nil, true
	w.set(lagging.self, identity.Up)
	a.add("visits", local, 1) // the delta of this change contains the moved history
	var delta []byte
	for _, l := range w.sent {
		if l.send.Kind == replication.KindDelta {
			delta = l.send.Data
		}
	}
	lagging.step(received{From: a.self, Data: delta})
	if got := lagging.show("visits"); got != "30" || lagging.m.Counters().DeltasGap != 1 {
		t.Errorf("the node has %s, %d gaps, want 30 and 1", got, lagging.m.Counters().DeltasGap)
	}
	w.sendMembers()
	w.run(time.Minute)
	if got := lagging.show("visits"); got != "31" {
		t.Errorf("after the next gossip, the node has %s, want 31", got)
	}
}

// While a node is unreachable no pruning begins, even if it is due.
func TestPruneBeginsWhenAllReachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{PruneInterval: time.Minute, PruneAfter: 10 * time.Second}, 4)
	a, unreachable, gone := w.hosts[0], w.hosts[2], w.hosts[3]
	w.wait(gone, gone.add("visits", all, 10))
	w.leave(gone)
	w.run(40 * time.Second)
	w.cut = func(x, y *host) bool { return x == unreachable || y == unreachable }
	w.sendMembers()
	w.run(time.Minute)
	if a.m.Counters().Initiated != 0 {
		t.Error("a pruning began while a node was unreachable")
	}
	w.cut = nil
	w.sendMembers()
	w.run(time.Minute)
	if a.m.Counters().Initiated != 1 {
		t.Error("no pruning began after all nodes were reachable")
	}
}

// Only one node holds the latest history of a removed node. This history is not lost, even if its
// holder is unreachable for a while.
func TestPruneWaitsForHistory(t *testing.T) {
	t.Parallel()
	w := pruningWorld(t, 4)
	a, b, gone := w.hosts[0], w.hosts[1], w.hosts[3]
	w.wait(gone, gone.add("visits", all, 10))
	w.cut = func(x, y *host) bool { return x == b || y == b } // the cluster does not detect this fault
	w.leave(gone)
	v := must((*crdt.Types)(nil).Value(must(crdt.As[crdt.GCounter](nil, value(a, "visits"))).Add(gone.actor, 40)))
	late := replication.Write{Entry: replication.Entry{Key: "visits", Value: must(v.AppendBinary(nil))}}
	for _, h := range w.hosts[:3] { // all are reported as reachable
		h.step(replication.Members{All: w.members})
	}
	b.step(received{From: a.self, Data: replication.AppendMessage(nil, late)})
	w.run(2 * time.Minute)
	if a.m.Counters().Initiated != 1 || a.m.Counters().Pruned != 0 {
		t.Errorf("%d prunings began, %d completed, want 1 and 0", a.m.Counters().Initiated, a.m.Counters().Pruned)
	}
	w.cut = nil
	w.run(2 * time.Minute)
	for _, h := range w.hosts[:3] {
		if holdsHistory(h, "visits", gone) || h.show("visits") != "50" {
			t.Errorf("%v has %s, want 50", h.self, h.show("visits"))
		}
	}
}

// If the owner of a marker is removed, another node takes over the pruning.
func TestPruneAfterOwnerLeaves(t *testing.T) {
	t.Parallel()
	w := pruningWorld(t, 4)
	first, b, gone := w.hosts[0], w.hosts[1], w.hosts[3]
	for _, h := range w.hosts {
		w.wait(h, h.add("visits", all, 10))
	}
	w.leave(gone)
	for first.m.Counters().Initiated == 0 {
		w.run(100 * time.Millisecond)
	}
	w.run(2 * time.Second)
	if first.m.Counters().Pruned != 0 {
		t.Fatal("the first owner has already pruned")
	}
	w.leave(first)
	w.run(3 * time.Minute)
	for _, h := range w.hosts[1:3] {
		if holdsHistory(h, "visits", gone) || holdsHistory(h, "visits", first) || h.show("visits") != "40" {
			t.Errorf("%v has %s, want 40", h.self, h.show("visits"))
		}
	}
	if b.m.Counters().Pruned != 2 {
		t.Errorf("the next owner completed %d prunings, want 2", b.m.Counters().Pruned)
	}
}

// Nodes that were removed before this node joined are discovered by their history.
func TestPruneUnknownRemovedNode(t *testing.T) {
	t.Parallel()
	w := pruningWorld(t, 2)
	a := w.hosts[0]
	old := must(crdt.NewSelf(node("long-ago", 99)))
	v := must((*crdt.Types)(nil).Value(crdt.GCounter{}.Add(old, 5)))
	a.step(received{From: w.hosts[1].self, Data: replication.AppendMessage(nil, replication.Write{
		Entry: replication.Entry{Key: "visits", Value: must(v.AppendBinary(nil))},
	})})
	w.run(2 * time.Minute)
	for _, h := range w.hosts {
		if value(h, "visits").NeedsPruning(old.Node()) || h.show("visits") != "5" {
			t.Errorf("%v has %s, want 5", h.self, h.show("visits"))
		}
	}
}

// A new node fetches the data from up to three older nodes, an equal part from each. If one of them
// does not answer, the new node continues with the others.
func TestPull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 4)
	a := w.hosts[0]
	for i := range 3000 {
		a.put(string(rune('a'+i%26))+time.Duration(i).String(), local, "x", "y")
	}
	a.del("a0s", local)
	w.run(time.Second)
	if !w.converged() {
		t.Fatal("the older nodes did not converge")
	}
	silent := w.hosts[1]
	w.cut = func(x, _ *host) bool { return x == silent } // the node receives messages, but its own messages are lost
	w.keep = true
	n := w.start("n9", nil)
	w.set(n.self, identity.Up)
	n.step(replication.Members{All: w.members})
	for _, h := range w.hosts[:4] {
		h.step(replication.Members{All: w.members})
	}
	w.run(20 * time.Second)
	if !n.m.Synced() || n.m.Root() != a.m.Root() {
		t.Errorf("synced: %t, %d of %d keys, want a synced node with the data of a", n.m.Synced(), len(n.m.Keys()), len(a.m.Keys()))
	}
	asked := map[*host]int{}
	for _, l := range w.sent {
		if l.send.Kind == replication.KindPull {
			asked[l.to]++
		}
	}
	if len(asked) != 3 {
		t.Errorf("the new node sent Pulls to %d nodes, want 3", len(asked))
	}
	if first := w.hosts[0]; !first.m.Synced() {
		t.Error("the first node is not synced")
	}
}

// A new node does not count as synced while it has reached none of the older nodes.
func TestPullWaitsForOlderNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 1)
	a := w.hosts[0]
	a.add("visits", local, 7)
	n := w.start("n2", nil)
	w.set(n.self, identity.Up)
	w.cut = func(_, _ *host) bool { return true }
	w.sendMembers()
	w.run(time.Minute)
	if n.m.Synced() {
		t.Error("the new node is synced, want false, because the older node is unreachable")
	}
	w.cut = nil
	w.sendMembers()
	w.run(time.Minute)
	if !n.m.Synced() || n.show("visits") != "7" {
		t.Errorf("synced: %t, the counter is %s, want a synced node and 7", n.m.Synced(), n.show("visits"))
	}
}

// Versions of a removed node are dropped, also if the node has no history in the value.
func TestVersionsOfRemovedNodes(t *testing.T) {
	t.Parallel()
	w := pruningWorld(t, 4)
	a, gone := w.hosts[0], w.hosts[3]
	w.wait(a, a.put("set", all, "x", "y"))
	gone.drop("set", all, "x")
	w.converge(time.Minute)
	versions := func(name string) (nodes []identity.Node) {
		w.keep, w.sent = true, nil
		n := w.start(name, nil)
		w.set(n.self, identity.Up)
		w.sendMembers()
		w.run(time.Second)
		if n.show("set") != "y" {
			t.Errorf("%s has %s, want y", name, n.show("set"))
		}
		for _, m := range w.decoded(n, replication.KindChunk) {
			if c, ok := m.(replication.Chunk); ok {
				for i := range c.Entries {
					for _, v := range c.Entries[i].Versions {
						nodes = append(nodes, v.Node)
					}
				}
			}
		}
		return nodes
	}
	if before := versions("n5"); !slices.Contains(before, gone.self) {
		t.Errorf("a new node receives versions of %v, want one of %v", before, gone.self)
	}
	w.leave(gone)
	w.run(time.Minute)
	if after := versions("n6"); slices.Contains(after, gone.self) || !slices.Contains(after, a.self) {
		t.Errorf("after the removal of %v, a new node receives versions of %v", gone.self, after)
	}
	late := replication.Entry{Key: "set", Value: must(value(a, "set").AppendBinary(nil)), Versions: []replication.Version{{Node: gone.self, N: 9}}}
	for i, h := range w.alive() {
		h.receive(w.hosts[1-i%2], replication.Gossip{Entries: []replication.Entry{late}})
	}
	if after := versions("n7"); slices.Contains(after, gone.self) {
		t.Errorf("after a late message with versions of %v, a new node receives versions of %v", gone.self, after)
	}
}

// A bucket that is larger than a message is fetched in several messages and compared in parts.
func TestLargeBuckets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{MaxBatch: 16 << 10}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.cut = func(_, _ *host) bool { return true }
	text := make([]byte, 400)
	for i := range text {
		text[i] = 'k'
	}
	// Finding many keys for a few buckets would take long, so the test fills all buckets with long
	// keys.
	for i := range 6000 {
		a.add(string(text)+time.Duration(i).String(), local, 1)
		if i%3 == 0 {
			b.add(string(text)+time.Duration(i).String(), local, 1)
		}
	}
	w.run(time.Second)
	w.cut = nil
	w.converge(5 * time.Minute)
	n := w.start("n9", nil)
	w.set(n.self, identity.Up)
	w.sendMembers()
	w.run(time.Second)
	if n.m.Root() != a.m.Root() {
		t.Errorf("the new node has %d of %d keys, want the data of a", len(n.m.Keys()), len(a.m.Keys()))
	}
}

// A comparison of equal data costs one short message.
func TestEqualRoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 3)
	for i := range 100 {
		w.hosts[i%3].add(time.Duration(i).String(), local, 1)
	}
	w.run(10 * time.Second)
	w.keep = true
	w.run(100 * time.Second)
	bytes := 0
	for _, l := range w.sent {
		if l.send.Kind != replication.KindRoot {
			t.Errorf("sent %v, want only Root", l.send.Kind)
		}
		bytes += len(l.send.Data)
	}
	if len(w.sent) < 140 || len(w.sent) > 160 || bytes/len(w.sent) > 32 {
		t.Errorf("3 nodes sent %d messages with %d bytes in 100 s, want 140 to 160 messages of at most 32 bytes on average", len(w.sent), bytes)
	}
}

// A comparison repairs both nodes.
func TestCompareRepairsBoth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.run(100 * time.Millisecond) // the second node has nothing to pull
	w.cut = func(_, _ *host) bool { return true }
	a.put("both", local, "a")
	b.put("both", local, "b")
	a.put("here", local, "a")
	b.put("there", local, "b")
	a.put("deleted", local, "a")
	b.del("deleted", local)
	w.run(time.Second)
	w.cut = nil
	compared := func() uint64 { return a.m.Counters().Compared + b.m.Counters().Compared }
	for before := compared(); compared() == before; { // one comparison is enough
		w.next(w.now + time.Minute)
	}
	w.run(20 * time.Millisecond)
	for _, h := range w.hosts {
		got := []string{h.show("both"), h.show("here"), h.show("there"), h.show("deleted")}
		if !slices.Equal(got, []string{"a b", "a", "b", "deleted"}) {
			t.Errorf("%v has %q, want the merged data", h.self, got)
		}
	}
	if !w.converged() {
		t.Error("the roots differ")
	}
}

// unpruned returns a node with counters that contain history of another node. The other node was
// removed long ago, and the returned node is about to take over its history.
func unpruned(t *testing.T, keys int) (w *world, a *host) {
	t.Helper()
	w = newWorld(t, 1, replication.Config{
		GossipInterval: time.Second, PruneInterval: time.Minute, PruneAfter: time.Second, MarkerTTL: time.Hour,
	}, 2)
	a, gone := w.hosts[0], w.hosts[1]
	for i := range keys {
		key := fmt.Sprint("counter-", i)
		gone.add(key, local, 1)
		a.receive(gone, replication.Gossip{Entries: []replication.Entry{{Key: key, Value: must(value(gone, key).AppendBinary(nil))}}})
	}
	w.leave(gone)
	w.run(50 * time.Second)
	return w, a
}

// tick runs the next due work of a node. It returns the number of keys whose pruning began, and the number of keys whose pruning was completed.
func (h *host) tick() (begun, done uint64) {
	before := h.m.Counters()
	h.w.now = max(h.w.now, h.m.Next())
	h.apply(h.m.Tick(h.w.now))
	after := h.m.Counters()
	return after.Initiated - before.Initiated, after.Pruned - before.Pruned
}

// Pruning takes several steps, so that requests do not wait. It skips no key.
func TestPruneTakesSeveralSteps(t *testing.T) {
	t.Parallel()
	const keys = 2_000
	w, a := unpruned(t, keys)
	steps, sum := 0, uint64(0)
	for end := w.now + 20*time.Second; w.now < end; {
		begun, done := a.tick()
		if begun != done { // a single node completes each pruning at once
			t.Fatalf("%d keys begun, %d completed, want equal numbers", begun, done)
		}
		if done > 0 {
			steps++
		}
		if sum += done; done > 1_000 {
			t.Errorf("one step pruned %d keys, want at most 1,000", done)
		}
	}
	if sum != keys || steps < 2 {
		t.Errorf("pruned %d of %d keys in %d steps, want all keys in at least 2 steps", sum, keys, steps)
	}
	var notes []int
	for _, n := range a.notes {
		if n.Kind == replication.NotePruned {
			notes = append(notes, n.N)
		}
	}
	if len(notes) != 1 || notes[0] != keys {
		t.Errorf("the notes report %v pruned keys, want one note with all keys", notes)
	}
}

// Pruning stops while a node is unreachable and continues afterwards.
func TestPrunePausesWhileUnreachable(t *testing.T) {
	t.Parallel()
	const keys = 2_000
	w, a := unpruned(t, keys)
	first := uint64(0)
	for first == 0 {
		_, first = a.tick()
	}
	c := w.start("n3", nil)
	c.ended = true
	w.set(c.self, identity.Up)
	w.sendMembers()
	for end := w.now + 2*time.Minute; w.now < end; {
		if begun, done := a.tick(); begun+done > 0 {
			t.Fatalf("%d keys begun, %d completed while a node is unreachable, want none", begun, done)
		}
	}
	w.set(c.self, identity.Removed)
	w.sendMembers()
	sum := first
	for end := w.now + 2*time.Minute; w.now < end; {
		_, done := a.tick()
		sum += done
	}
	if sum != keys {
		t.Errorf("pruned %d of %d keys, want all", sum, keys)
	}
}
