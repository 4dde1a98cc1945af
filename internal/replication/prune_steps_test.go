// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/replication"
)

// leftBehind returns a node with as many counters of one that has left, long ago: it is about to take over what that has
// counted.
func leftBehind(t *testing.T, keys int) (w *world, a *host) {
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

// tick lets a node do what is due next, and returns how many keys it has said of that it takes them over, and done so.
func (h *host) tick() (begun, done uint64) {
	before := h.m.Counters()
	h.w.now = max(h.w.now, h.m.Next())
	h.apply(h.m.Tick(h.w.now))
	after := h.m.Counters()
	return after.Initiated - before.Initiated, after.Pruned - before.Pruned
}

// Requests do not wait until all keys are pruned, and none is left out.
func TestPruneTakesSeveralSteps(t *testing.T) {
	t.Parallel()
	const keys = 2_000
	w, a := leftBehind(t, keys)
	steps, sum := 0, uint64(0)
	for end := w.now + 20*time.Second; w.now < end; {
		begun, done := a.tick()
		if begun != done { // it is alone
			t.Fatalf("%d keys are begun with, %d done", begun, done)
		}
		if done > 0 {
			steps++
		}
		if sum += done; done > 1_000 {
			t.Errorf("%d keys in one step", done)
		}
	}
	if sum != keys || steps < 2 {
		t.Errorf("%d of %d keys in %d steps", sum, keys, steps)
	}
	var notes []int
	for _, n := range a.notes {
		if n.Kind == replication.NotePruned {
			notes = append(notes, n.N)
		}
	}
	if len(notes) != 1 || notes[0] != keys {
		t.Errorf("pruned by the notes: %v", notes)
	}
}

// While a node can't be reached nothing is pruned, also if it has begun. It goes on when all can be reached.
func TestPruneStopsHalfway(t *testing.T) {
	t.Parallel()
	const keys = 2_000
	w, a := leftBehind(t, keys)
	first := uint64(0)
	for first == 0 {
		_, first = a.tick()
	}
	c := w.start("n3", nil)
	c.dead = true
	w.set(c.self, membership.Up)
	w.tell()
	for end := w.now + 2*time.Minute; w.now < end; {
		if begun, done := a.tick(); begun+done > 0 {
			t.Fatalf("%d keys are begun with, %d done while a node can't be reached", begun, done)
		}
	}
	w.set(c.self, membership.Removed)
	w.tell()
	sum := first
	for end := w.now + 2*time.Minute; w.now < end; {
		_, done := a.tick()
		sum += done
	}
	if sum != keys {
		t.Errorf("%d of %d keys", sum, keys)
	}
}
