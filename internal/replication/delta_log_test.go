// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/replication"
)

// A change that a write has delivered to a node is not sent to it again, whatever other nodes
// received between.
func TestDeliveredOnce(t *testing.T) {
	t.Parallel()
	w := silent(t, 5)
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
			t.Errorf("%v: %d deltas applied, %d known, %d with a gap", h.self, applied, known, gaps)
		}
		if h.m.Root() != a.m.Root() {
			t.Errorf("%v has another root", h.self)
		}
	}
}

// A node that received only a middle change by a write gets all changes without a gap, because the
// write may be lost.
func TestDeliveredBetween(t *testing.T) {
	t.Parallel()
	w := silent(t, 3)
	a := w.hosts[0]
	w.wait(a, a.put("cart", all, "tea"))
	w.run(time.Second)
	a.put("cart", local, "0") // at once
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
			t.Errorf("%v has %q after %d gaps", h.self, got, h.m.Counters().DeltasGap)
		}
	}
}

// A pending change is not merged into a change that a write has delivered.
func TestDeliveredIsNotJoined(t *testing.T) {
	t.Parallel()
	w := silent(t, 3)
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
			t.Errorf("%v has %q", h.self, got)
		}
	}
}

// Many changes are sent in portions with pauses. A key that changes in several portions loses
// nothing.
func TestChangesInPortions(t *testing.T) {
	t.Parallel()
	w := silent(t, 3)
	a, b := w.hosts[0], w.hosts[1]
	const keys = 600
	for i := range keys {
		w.wait(a, a.put(fmt.Sprint("set-", i), all, "first"))
	}
	w.run(time.Second)
	a.put("set-0", local, "second") // at once
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
	for i := range keys { // they join those before
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
			t.Errorf("%d changes are sent at %v", n, at)
		}
	}
	if len(sent) < 1800/256 || items > 1800 {
		t.Errorf("%d changes are sent in %d portions", items, len(sent))
	}
	for _, h := range w.hosts[1:] {
		if c := h.m.Counters(); h.m.Root() != a.m.Root() || c.DeltasGap != 0 {
			t.Errorf("%v has another root or found gaps: %d", h.self, c.DeltasGap)
		}
	}
}
