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

// A change that a write has delivered to a node is not sent to that node again. This does not
// depend on the changes that other nodes received in between.
func TestDeliveredOnce(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 5)
	a := w.hosts[0]
	const keys = 20
	for i := range keys {
		w.wait(a, a.put(fmt.Sprint("set-", i), all, "first"))
		w.wait(a, a.add(fmt.Sprint("counter-", i), all, 1))
	}
	w.run(time.Second)
	before := make([]replication.Counters, len(w.hosts))
	for i, h := range w.hosts {
		before[i] = h.m.Counters()
	}
	for i := range keys {
		a.put(fmt.Sprint("set-", i), majority, "second")
		a.add(fmt.Sprint("counter-", i), majority, 1)
	}
	w.run(time.Second)
	for i, h := range w.hosts[1:] {
		c, b := h.m.Counters(), before[i+1]
		if applied, known, gaps := c.DeltasApplied-b.DeltasApplied, c.DeltasKnown-b.DeltasKnown, c.DeltasGap-b.DeltasGap; applied != 2*keys || known+gaps != 0 {
			t.Errorf("%v: %d deltas applied, %d known, %d after a gap, want two applied deltas for each key only", h.self, applied, known, gaps)
		}
		if h.m.Root() != a.m.Root() {
			t.Errorf("the root of %v differs from the root of a", h.self)
		}
	}
}

// If a write delivers only a middle change to a node, the node still receives all changes without a
// gap, because the write may be lost.
func TestDeliveredMiddleChange(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 3)
	a := w.hosts[0]
	w.wait(a, a.put("cart", all, "tea"))
	w.run(time.Second)
	a.put("cart", local, "0") // sent at once
	w.run(10 * time.Millisecond)
	a.put("cart", local, "1")
	w.cut = func(_, _ *host) bool { return true }
	a.put("cart", majority, "2")
	w.run(10 * time.Millisecond)
	w.cut = nil
	a.put("cart", local, "3")
	w.run(250 * time.Millisecond)
	for _, h := range w.hosts {
		if got := h.show("cart"); got != "0 1 2 3 tea" || h.m.Counters().DeltasGap != 0 {
			t.Errorf("%v has %q, %d gaps, want \"0 1 2 3 tea\" and no gap", h.self, got, h.m.Counters().DeltasGap)
		}
	}
}

// A pending change is not merged into a change that a write has delivered.
func TestDeliveredIsNotJoined(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 3)
	a := w.hosts[0]
	w.wait(a, a.put("cart", all, "tea"))
	w.run(time.Second)
	a.put("cart", local, "0")
	w.run(10 * time.Millisecond)
	a.put("cart", majority, "1")
	a.put("cart", local, "2")
	w.run(250 * time.Millisecond)
	for _, h := range w.hosts {
		if got := h.show("cart"); got != "0 1 2 tea" {
			t.Errorf("%v has %q, want \"0 1 2 tea\"", h.self, got)
		}
	}
}

// Many changes are sent in portions with pauses. A key whose changes are in several portions loses
// no change.
func TestChangesAreSentInPortions(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	const keys = 600
	for i := range keys {
		w.wait(a, a.put(fmt.Sprint("set-", i), all, "first"))
	}
	w.run(time.Second)
	a.put("set-0", local, "second") // sent at once
	w.run(10 * time.Millisecond)
	w.sent = nil
	for _, e := range []string{"third", "fourth"} {
		for i := range keys {
			a.put(fmt.Sprint("set-", i), majority, e)
		}
	}
	for i := range keys {
		a.put(fmt.Sprint("set-", i), local, "fifth")
	}
	for i := range keys { // these changes join the earlier ones
		a.put(fmt.Sprint("set-", i), local, "sixth")
	}
	w.run(time.Second)
	sent := map[time.Duration]int{}
	items := 0
	for _, l := range w.sent {
		if d, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Delta); ok && l.to == b && d.Nr == 0 {
			sent[l.at] += len(d.Items)
			items += len(d.Items)
		}
	}
	for at, n := range sent {
		if n > 256 {
			t.Errorf("%d changes were sent at %v, want at most 256", n, at)
		}
	}
	if len(sent) < 1800/256 || items > 1800 {
		t.Errorf("%d changes were sent in %d portions, want at most 1,800 changes in at least 7 portions", items, len(sent))
	}
	for _, h := range w.hosts[1:] {
		if c := h.m.Counters(); h.m.Root() != a.m.Root() || c.DeltasGap != 0 {
			t.Errorf("the root of %v differs from the root of a, or %d gaps occurred, want 0", h.self, c.DeltasGap)
		}
	}
}

// sentTo returns the messages sent to a node and clears all messages.
func (w *world) sentTo(h *host) []replication.Kind {
	var kinds []replication.Kind
	for _, l := range w.sent {
		if l.to == h {
			kinds = append(kinds, l.send.Kind)
		}
	}
	w.sent = nil
	return kinds
}

// decoded returns the messages of a kind that were sent to a node.
func (w *world) decoded(h *host, kind replication.Kind) (all []replication.Message) {
	for _, l := range w.sent {
		if l.to == h && l.send.Kind == kind {
			all = append(all, must(replication.DecodeMessage(l.send.Data)))
		}
	}
	return all
}

// withoutGossip returns a world of nodes that do not compare their data.
func withoutGossip(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, n)
	w.run(time.Second)
	w.keep = true
	return w
}

// The first change after a quiet period is sent at once to all nodes of a small cluster; further
// changes are combined.
func TestDeltasAreSentSoon(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	a.add("visits", local, 1)
	if got := w.sentTo(b); !slices.Equal(got, []replication.Kind{replication.KindGossip}) {
		t.Errorf("the first change sent %v, want one Gossip", got)
	}
	for range 20 {
		w.run(10 * time.Millisecond)
		a.add("visits", local, 1)
	}
	if got := len(w.decoded(b, replication.KindDelta)); got != 1 {
		t.Errorf("20 changes in 200 ms were sent in %d messages, want 1", got)
	}
	w.run(250 * time.Millisecond)
	if got := w.sentTo(b); !slices.Equal(got, []replication.Kind{replication.KindDelta, replication.KindDelta}) || b.show("visits") != "21" {
		t.Errorf("sent %v, and b has %s, want two Deltas and 21", got, b.show("visits"))
	}
	w.run(100 * time.Millisecond)
	a.add("visits", local, 1)
	if got := w.sentTo(b); !slices.Equal(got, []replication.Kind{replication.KindDelta}) {
		t.Errorf("after a quiet period, the change sent %v, want one Delta", got)
	}
}

// In a large cluster changes are sent to a slice of the nodes at a time, and to all within a gossip
// interval.
func TestSlices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: 2 * time.Second}, 21)
	w.run(time.Minute)
	w.keep = true
	w.hosts[0].add("visits", local, 1)
	w.run(400 * time.Millisecond)
	holders := func() (n int) {
		for _, h := range w.hosts[1:] {
			if h.show("visits") == "1" {
				n++
			}
		}
		return n
	}
	pushes := map[time.Duration]int{}
	for range 8 {
		w.run(400 * time.Millisecond)
	}
	for _, l := range w.sent {
		if l.from == w.hosts[0] && !l.send.Bulk {
			pushes[l.at]++
		}
	}
	for at, n := range pushes {
		if n != 5 {
			t.Errorf("changes were sent to %d nodes at %v, want 5", n, at)
		}
	}
	if len(pushes) != 4 || holders() != 20 {
		t.Errorf("sent in %d slices to %d nodes, want 4 slices and 20 nodes", len(pushes), holders())
	}
}

// A delta after a gap is not merged: the node requests the whole value.
func TestGap(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.put("cart", local, "tea")
	w.run(time.Second)
	w.cut = func(_, _ *host) bool { return true }
	a.put("cart", local, "milk")
	w.run(time.Second)
	w.cut, w.sent = nil, nil
	a.drop("cart", local, "tea")
	before := b.show("cart")
	w.run(20 * time.Millisecond)
	if got := b.show("cart"); before != "tea" || got != "milk" {
		t.Errorf("b had %q before the request and %q after it, want \"tea\" and \"milk\"", before, got)
	}
	if c := b.m.Counters(); c.DeltasGap != 1 || c.Sent[replication.KindWant] != 1 {
		t.Errorf("got %d gaps and %d Want messages, want 1 and 1", c.DeltasGap, c.Sent[replication.KindWant])
	}
	// The value contains the versions, so the next delta has no gap.
	w.sent = nil
	w.run(time.Second)
	a.put("cart", local, "bread")
	w.run(20 * time.Millisecond)
	if got := b.show("cart"); got != "bread milk" || b.m.Counters().DeltasGap != 1 {
		t.Errorf("b has %q, %d gaps, want \"bread milk\" and 1 gap", got, b.m.Counters().DeltasGap)
	}
}

// Deltas may arrive out of order or twice.
func TestDeltasOutOfOrder(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.put("cart", local, "tea")
	w.run(time.Second)
	w.cut = func(_, _ *host) bool { return true }
	for _, e := range []string{"milk", "bread"} {
		a.put("cart", local, e)
		w.run(time.Second)
	}
	var deltas [][]byte
	for _, l := range w.sent {
		if l.send.Kind == replication.KindDelta {
			deltas = append(deltas, l.send.Data)
		}
	}
	if len(deltas) != 2 {
		t.Fatalf("sent %d deltas, want 2", len(deltas))
	}
	for _, i := range []int{1, 0, 0, 1, 1} {
		b.step(received{From: a.self, Data: deltas[i]})
	}
	if got := b.show("cart"); got != "bread milk tea" {
		t.Errorf("b has %q, want \"bread milk tea\"", got)
	}
	if c := b.m.Counters(); c.DeltasGap != 1 || c.DeltasApplied != 2 || c.DeltasKnown != 2 {
		t.Errorf("%d gaps, %d applied, %d known, want 1, 2 and 2", c.DeltasGap, c.DeltasApplied, c.DeltasKnown)
	}
}

// A majority write sends the whole value at once to a node with a gap.
func TestWriteAfterGap(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.put("cart", local, "tea")
	w.run(time.Second)
	w.cut = func(_, _ *host) bool { return true }
	a.put("cart", local, "milk")
	w.run(time.Second)
	w.cut, w.sent = nil, nil
	begun := w.now
	if r := w.wait(a, a.put("cart", majority, "bread")); r.Outcome != replication.Done || w.now-begun > 20*time.Millisecond {
		t.Errorf("got %+v after %v, want Done within 20 ms", r, w.now-begun)
	}
	if got := b.show("cart"); got != "bread milk tea" {
		t.Errorf("b has %q, want \"bread milk tea\"", got)
	}
}

// The deltas of a key go to the same nodes, and changes that a write has delivered are not sent
// again.
func TestMajorityWritesSendOnce(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 3)
	a := w.hosts[0]
	w.wait(a, a.put("cart", all, "tea"))
	w.run(time.Second)
	w.sent = nil
	for i := range 50 {
		if r := w.wait(a, a.put("cart", majority, fmt.Sprint(i))); r.Outcome != replication.Done {
			t.Fatalf("got %+v, want Done", r)
		}
	}
	deltas := map[*host]int{}
	for _, l := range w.sent {
		if l.send.Kind == replication.KindDelta {
			deltas[l.to]++
		}
	}
	counts := []int{deltas[w.hosts[1]], deltas[w.hosts[2]]}
	slices.Sort(counts)
	if counts[1] != 50 || counts[0] > 2 {
		t.Errorf("got %v messages to the other nodes, want 50 to one node and at most 2 to the other", counts)
	}
	w.run(time.Second)
	for _, h := range w.hosts[1:] {
		if h.show("cart") != a.show("cart") {
			t.Errorf("%v has %q, want the value of a", h.self, h.show("cart"))
		}
	}
}

// An update without a change sends nothing and leaves no gap.
func TestUpdateWithoutChange(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.put("cart", local, "tea")
	w.run(time.Second)
	w.sent = nil
	update(a, "cart", local, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s, nil })
	if len(w.sent) != 0 {
		t.Errorf("an update without a change sent %v, want no message", w.sentTo(b))
	}
	w.run(time.Second)
	a.put("cart", local, "milk")
	w.run(time.Second)
	if b.show("cart") != "milk tea" || b.m.Counters().DeltasGap != 0 {
		t.Errorf("b has %q, %d gaps, want \"milk tea\" and 0", b.show("cart"), b.m.Counters().DeltasGap)
	}
}

// Values without deltas are sent as a whole.
func TestTypesWithoutDeltas(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 3 {
		a.write("leader", local, fmt.Sprint(i))
		w.run(time.Second)
		if got := b.show("leader"); got != fmt.Sprint(i) {
			t.Errorf("after write %d: got %q, want the written value", i, got)
		}
	}
	w = newWorld(t, 1, replication.Config{GossipInterval: time.Hour, DisableDeltas: true}, 2)
	w.keep = true
	for range 3 {
		w.hosts[0].put("cart", majority, "x")
		w.run(time.Second)
	}
	if n := len(w.decoded(w.hosts[1], replication.KindDelta)); n != 0 {
		t.Errorf("%d deltas were sent with DisableDeltas, want 0", n)
	}
}

// If a delta has many operations, the whole value is sent.
func TestManyOperationsAreSentWhole(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 60 {
		a.put("cart", local, fmt.Sprint(i))
	}
	w.run(time.Second)
	w.sent = nil
	for i := range 60 { // each removal is an operation
		a.drop("cart", local, fmt.Sprint(i))
		w.run(time.Millisecond)
	}
	w.run(time.Second)
	if got := b.show("cart"); got != "" || b.m.Counters().DeltasGap != 0 {
		t.Errorf("b has %q, %d gaps, want an empty set and 0", got, b.m.Counters().DeltasGap)
	}
	if got := w.sentTo(b); !slices.Contains(got, replication.KindGossip) {
		t.Errorf("got %v, want a Gossip", got)
	}
}

// A node with deltas disabled requests the whole value for each delta; the other nodes still
// receive deltas.
func TestDeltasDisabledOnOneNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Minute}, 0)
	a, b := w.start("n1", nil), w.start("n2", nil)
	w.cfg.DisableDeltas = true
	c := w.start("n3", nil)
	for _, h := range w.hosts {
		w.set(h.self, identity.Up)
	}
	w.sendMembers()
	w.run(time.Second)
	w.wait(a, a.put("cart", all, "x"))
	w.wait(a, a.add("visits", all, 1))
	for _, id := range []uint64{a.put("cart", all, "y"), a.add("visits", all, 1)} {
		if r := w.wait(a, id); r.Outcome != replication.Done || r.Answered != 3 {
			t.Errorf("got %+v, want Done and 3 answers", r)
		}
	}
	if n := a.m.Counters().SecondWaves; n != 0 {
		t.Errorf("%d second waves, want 0", n)
	}
	if b.m.Counters().DeltasApplied != 2 || c.m.Counters().DeltasApplied != 0 || c.show("cart") != "x y" || c.show("visits") != "2" {
		t.Errorf("b applied %d deltas, c %d; c has %s, %s, want 2, 0, x y and 2", b.m.Counters().DeltasApplied, c.m.Counters().DeltasApplied, c.show("cart"), c.show("visits"))
	}
	// The same holds for deltas without a request.
	w.run(time.Second)
	a.put("cart", local, "z")
	a.add("visits", local, 1)
	w.run(time.Second)
	if c.m.Counters().DeltasApplied != 0 || c.show("cart") != "x y z" || c.show("visits") != "3" {
		t.Errorf("c has %s, %s, want x y z and 3", c.show("cart"), c.show("visits"))
	}
	// The node sends its own changes as whole values.
	w.keep, w.sent = true, nil
	w.wait(c, c.put("cart", majority, "c"))
	c.put("cart", local, "d")
	w.run(time.Second)
	if n, _ := w.sentBy(c, replication.KindDelta, 0); n != 0 || b.show("cart") != "c d x y z" {
		t.Errorf("c sent %d deltas; b has %s, want 0 and c d x y z", n, b.show("cart"))
	}
}

// A node that has acknowledged a removal also removes an addition of a third node that arrives
// later.
func TestRemovalBeforeAddition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	w.keep = true
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	for _, h := range w.hosts { // a new key would be sent as a whole value
		w.wait(h, h.put("set", replication.Level{Kind: replication.All}, h.self.Name))
	}
	w.run(time.Minute)
	w.sent = nil
	w.cut = func(from, to *host) bool { return from == a && to == c }
	a.put("set", local, "milk")
	w.run(100 * time.Millisecond)
	w.cut = nil
	if got := b.show("set"); got != "milk n1 n2 n3" {
		t.Fatalf("b has %s, want milk n1 n2 n3", got)
	}
	r := b.request("set", replication.Level{Kind: replication.All})
	b.step(replication.Update{Request: r, Modify: modify(remover(b, "milk"))})
	if got := w.wait(b, r.ID); got.Outcome != replication.Done {
		t.Fatalf("got %+v, want Done", got)
	}
	late := slices.IndexFunc(w.sent, func(l envelope) bool { return l.from == a && l.to == c && l.send.Kind == replication.KindDelta })
	if late < 0 {
		t.Fatal("no delta was sent")
	}
	c.step(received{From: a.self, Data: w.sent[late].send.Data})
	if got := c.show("set"); got != "n1 n2 n3" {
		t.Errorf("c has %s, want n1 n2 n3, because c has acknowledged the removal of milk", got)
	}
}

// A read with repair returns the state that was repaired, without later changes.
func TestReadReturnsRepairedValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	h := w.hosts[0]
	w.cut = func(from, to *host) bool { return true }
	h.write("register", local, "one")
	w.run(time.Second)
	w.cut = nil
	r := h.request("register", majority)
	h.step(replication.Get{Request: r, RepairPeers: true})
	w.run(2 * time.Millisecond) // the read is complete, and the repair has begun
	if _, answered := h.replies[r.ID]; answered {
		t.Fatal("the read was answered before the repair")
	}
	h.write("register", local, "two")
	if got := show(w.wait(h, r.ID).Value); got != "one" {
		t.Errorf("got %q, want the repaired value one", got)
	}
}

// Durable keys are pruned later than other keys.
func TestDurablePrunedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{
		PruneInterval: time.Second, PruneAfter: 3 * time.Second, DurablePruneAfter: time.Minute, Durable: []string{"d"},
	}, 3)
	gone := w.hosts[2]
	for _, key := range []string{"d", "other"} {
		w.wait(gone, gone.add(key, replication.Level{Kind: replication.All}, 1))
	}
	gone.ended = true
	w.set(gone.self, identity.Removed)
	w.sendMembers()
	has := func(key string) bool {
		v, _, _ := w.hosts[0].m.Value(key)
		return slices.Contains(v.ModifiedBy(), gone.self)
	}
	w.run(30 * time.Second)
	if !has("d") || has("other") {
		t.Errorf("after 30 s: history in the durable key: %t, in the other key: %t, want true and false", has("d"), has("other"))
	}
	w.run(2 * time.Minute)
	if has("d") {
		t.Error("the durable key still has history")
	}
}
