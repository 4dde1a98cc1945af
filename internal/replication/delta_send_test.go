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

// silent returns a world of nodes that do not compare their data.
func silent(t *testing.T, n int) *world {
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
	w := silent(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	a.add("visits", local, 1)
	if got := w.sentTo(b); !slices.Equal(got, []replication.Kind{replication.KindGossip}) {
		t.Errorf("the first change sends %v", got)
	}
	for range 20 {
		w.run(10 * time.Millisecond)
		a.add("visits", local, 1)
	}
	if got := len(w.decoded(b, replication.KindDelta)); got != 1 {
		t.Errorf("20 changes in 200 ms are sent in %d messages", got)
	}
	w.run(250 * time.Millisecond)
	if got := w.sentTo(b); !slices.Equal(got, []replication.Kind{replication.KindDelta, replication.KindDelta}) || b.show("visits") != "21" {
		t.Errorf("then %v are sent, and it has %s", got, b.show("visits"))
	}
	w.run(100 * time.Millisecond)
	a.add("visits", local, 1)
	if got := w.sentTo(b); !slices.Equal(got, []replication.Kind{replication.KindDelta}) {
		t.Errorf("after some quiet %v are sent", got)
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
	told := func() (n int) {
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
			t.Errorf("changes are sent to %d nodes at %v", n, at)
		}
	}
	if len(pushes) != 4 || told() != 20 {
		t.Errorf("sent in %d slices, %d nodes have the change", len(pushes), told())
	}
}

// A delta after a gap is not merged: the node requests the whole value.
func TestGap(t *testing.T) {
	t.Parallel()
	w := silent(t, 2)
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
		t.Errorf("it had %q, and has %q", before, got)
	}
	if c := b.m.Counters(); c.DeltasGap != 1 || c.Sent[replication.KindWant] != 1 {
		t.Errorf("%d gaps, asked %d times", c.DeltasGap, c.Sent[replication.KindWant])
	}
	// The numbers came with the value: the next delta fits.
	w.sent = nil
	w.run(time.Second)
	a.put("cart", local, "bread")
	w.run(20 * time.Millisecond)
	if got := b.show("cart"); got != "bread milk" || b.m.Counters().DeltasGap != 1 {
		t.Errorf("then it has %q, after %d gaps", got, b.m.Counters().DeltasGap)
	}
}

// Deltas that arrive out of order or twice do no harm.
func TestDeltasOutOfOrder(t *testing.T) {
	t.Parallel()
	w := silent(t, 2)
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
		t.Fatalf("%d deltas", len(deltas))
	}
	for _, i := range []int{1, 0, 0, 1, 1} {
		b.step(received{From: a.self, Data: deltas[i]})
	}
	if got := b.show("cart"); got != "bread milk tea" {
		t.Errorf("it has %q", got)
	}
	if c := b.m.Counters(); c.DeltasGap != 1 || c.DeltasApplied != 2 || c.DeltasKnown != 2 {
		t.Errorf("%d gaps, %d merged, %d known", c.DeltasGap, c.DeltasApplied, c.DeltasKnown)
	}
}

// A majority write sends the whole value at once to a node with a gap.
func TestWriteOverAGap(t *testing.T) {
	t.Parallel()
	w := silent(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.put("cart", local, "tea")
	w.run(time.Second)
	w.cut = func(_, _ *host) bool { return true }
	a.put("cart", local, "milk")
	w.run(time.Second)
	w.cut, w.sent = nil, nil
	begun := w.now
	if r := w.wait(a, a.put("cart", majority, "bread")); r.Outcome != replication.Done || w.now-begun > 20*time.Millisecond {
		t.Errorf("%+v after %v", r, w.now-begun)
	}
	if got := b.show("cart"); got != "bread milk tea" {
		t.Errorf("it has %q", got)
	}
}

// The deltas of a key go to the same nodes, and changes that a write has delivered are not sent
// again.
func TestMajorityWritesSendOnce(t *testing.T) {
	t.Parallel()
	w := silent(t, 3)
	a := w.hosts[0]
	w.wait(a, a.put("cart", all, "tea"))
	w.run(time.Second)
	w.sent = nil
	for i := range 50 {
		if r := w.wait(a, a.put("cart", majority, fmt.Sprint(i))); r.Outcome != replication.Done {
			t.Fatalf("%+v", r)
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
		t.Errorf("messages to the others: %v", counts)
	}
	w.run(time.Second)
	for _, h := range w.hosts[1:] {
		if h.show("cart") != a.show("cart") {
			t.Errorf("%v has %q", h.self, h.show("cart"))
		}
	}
}

// An update without a change sends nothing and leaves no gap.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	w := silent(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.put("cart", local, "tea")
	w.run(time.Second)
	w.sent = nil
	update(a, "cart", local, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s, nil })
	if len(w.sent) != 0 {
		t.Errorf("it sends %v", w.sentTo(b))
	}
	w.run(time.Second)
	a.put("cart", local, "milk")
	w.run(time.Second)
	if b.show("cart") != "milk tea" || b.m.Counters().DeltasGap != 0 {
		t.Errorf("it has %q after %d gaps", b.show("cart"), b.m.Counters().DeltasGap)
	}
}

// Values without deltas are sent as a whole.
func TestWithoutDeltas(t *testing.T) {
	t.Parallel()
	w := silent(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 3 {
		a.write("leader", local, fmt.Sprint(i))
		w.run(time.Second)
		if got := b.show("leader"); got != fmt.Sprint(i) {
			t.Errorf("after %d it has %q", i, got)
		}
	}
	w = newWorld(t, 1, replication.Config{GossipInterval: time.Hour, DisableDeltas: true}, 2)
	w.keep = true
	for range 3 {
		w.hosts[0].put("cart", majority, "x")
		w.run(time.Second)
	}
	if n := len(w.decoded(w.hosts[1], replication.KindDelta)); n != 0 {
		t.Errorf("%d deltas are sent though they are disabled", n)
	}
}

// Many operations are sent as a whole value.
func TestManyOperationsAreSentWhole(t *testing.T) {
	t.Parallel()
	w := silent(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 60 {
		a.put("cart", local, fmt.Sprint(i))
	}
	w.run(time.Second)
	w.sent = nil
	for i := range 60 { // each is an operation
		a.drop("cart", local, fmt.Sprint(i))
		w.run(time.Millisecond)
	}
	w.run(time.Second)
	if got := b.show("cart"); got != "" || b.m.Counters().DeltasGap != 0 {
		t.Errorf("it has %q after %d gaps", got, b.m.Counters().DeltasGap)
	}
	if got := w.sentTo(b); !slices.Contains(got, replication.KindGossip) {
		t.Errorf("sent: %v", got)
	}
}

// A node with deltas disabled requests the whole value for each delta; the other nodes still
// receive deltas.
func TestDeltasDisabledSomewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Minute}, 0)
	a, b := w.start("n1", nil), w.start("n2", nil)
	w.cfg.DisableDeltas = true
	c := w.start("n3", nil)
	for _, h := range w.hosts {
		w.set(h.self, identity.Up)
	}
	w.tell()
	w.run(time.Second)
	w.wait(a, a.put("cart", all, "x"))
	w.wait(a, a.add("visits", all, 1))
	for _, id := range []uint64{a.put("cart", all, "y"), a.add("visits", all, 1)} {
		if r := w.wait(a, id); r.Outcome != replication.Done || r.Answered != 3 {
			t.Errorf("%+v", r)
		}
	}
	if n := a.m.Counters().SecondWaves; n != 0 {
		t.Errorf("%d second waves: the node has not rejected the delta", n)
	}
	if b.m.Counters().DeltasApplied != 2 || c.m.Counters().DeltasApplied != 0 || c.show("cart") != "x y" || c.show("visits") != "2" {
		t.Errorf("%d and %d deltas, %s, %s", b.m.Counters().DeltasApplied, c.m.Counters().DeltasApplied, c.show("cart"), c.show("visits"))
	}
	// The same holds for deltas without a request.
	w.run(time.Second)
	a.put("cart", local, "z")
	a.add("visits", local, 1)
	w.run(time.Second)
	if c.m.Counters().DeltasApplied != 0 || c.show("cart") != "x y z" || c.show("visits") != "3" {
		t.Errorf("c holds %s, %s", c.show("cart"), c.show("visits"))
	}
	// Its own changes are sent as whole values.
	w.keep, w.sent = true, nil
	w.wait(c, c.put("cart", majority, "c"))
	c.put("cart", local, "d")
	w.run(time.Second)
	if n, _ := w.sentBy(c, replication.KindDelta, 0); n != 0 || b.show("cart") != "c d x y z" {
		t.Errorf("%d deltas, %s", n, b.show("cart"))
	}
}
