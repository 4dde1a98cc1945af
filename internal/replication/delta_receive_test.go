// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// A node that has acknowledged a removal also removes an addition of a third node that arrives
// later.
func TestRemovalBeforeAddition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	w.keep = true
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	for _, h := range w.hosts { // so that it is no new key, which comes as a whole
		w.wait(h, h.put("set", replication.Level{Kind: replication.All}, h.self.Name))
	}
	w.run(time.Minute)
	w.sent = nil
	w.cut = func(from, to *host) bool { return from == a && to == c }
	a.put("set", local, "milk")
	w.run(100 * time.Millisecond)
	w.cut = nil
	if got := b.show("set"); got != "milk n1 n2 n3" {
		t.Fatalf("b has %s", got)
	}
	r := b.request("set", replication.Level{Kind: replication.All})
	b.step(replication.Update{Request: r, Modify: modify(remover(b, "milk"))})
	if got := w.wait(b, r.ID); got.Outcome != replication.Done {
		t.Fatal(got)
	}
	late := slices.IndexFunc(w.sent, func(l letter) bool { return l.from == a && l.to == c && l.send.Kind == replication.KindDelta })
	if late < 0 {
		t.Fatal("nothing was sent")
	}
	c.step(received{From: a.self, Data: w.sent[late].send.Data})
	if got := c.show("set"); got != "n1 n2 n3" {
		t.Errorf("c has acknowledged that milk was removed, and has %s", got)
	}
}

// A read with repair returns the state that was repaired, without later changes.
func TestRepairedIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	h := w.hosts[0]
	w.cut = func(from, to *host) bool { return true }
	h.write("register", local, "one")
	w.run(time.Second)
	w.cut = nil
	r := h.request("register", majority)
	h.step(replication.Get{Request: r, RepairPeers: true})
	w.run(2 * time.Millisecond) // it has been read, and is written to others
	if _, answered := h.replies[r.ID]; answered {
		t.Fatal("it is answered already")
	}
	h.write("register", local, "two")
	if got := show(w.wait(h, r.ID).Value); got != "one" {
		t.Errorf("the answer is %q, and others have been made to hold one", got)
	}
}

// Durable keys are pruned later than others.
func TestDurablePrunedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{
		PruneInterval: time.Second, PruneAfter: 3 * time.Second, DurablePruneAfter: time.Minute, Durable: []string{"d"},
	}, 3)
	gone := w.hosts[2]
	for _, key := range []string{"d", "other"} {
		w.wait(gone, gone.add(key, replication.Level{Kind: replication.All}, 1))
	}
	gone.dead = true
	w.set(gone.self, identity.Removed)
	w.tell()
	has := func(key string) bool {
		v, _, _ := w.hosts[0].m.Value(key)
		return slices.Contains(v.ModifiedBy(), gone.self)
	}
	w.run(30 * time.Second)
	if !has("d") || has("other") {
		t.Errorf("after half a minute: history of the removed node in the durable key: %t, in the other: %t", has("d"), has("other"))
	}
	w.run(2 * time.Minute)
	if has("d") {
		t.Error("something is left in the durable key")
	}
}
