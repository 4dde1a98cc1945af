// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// If the function of an update merges other data, this data is acknowledged like the changes.
func TestUpdateWithMergedData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	a := w.hosts[0]
	w.wait(a, a.put("set", all, "x"))
	w.wait(a, a.add("count", all, 1))
	import1 := must(crdt.ORSet[string]{}.Add(must(crdt.NewSelf(node("imported", 77))), "imported"))
	import2 := crdt.GCounter{}.Add(must(crdt.NewSelf(node("imported", 77))), 10)
	r := w.wait(a, update(a, "set", all, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
		s, err := s.Merge(import1)
		if err != nil {
			return s, err
		}
		return s.Add(a.actor, "y")
	}))
	if r.Outcome != replication.Done {
		t.Errorf("got %+v, want Done", r)
	}
	w.wait(a, update(a, "count", all, func(c crdt.GCounter) (crdt.GCounter, error) {
		c, err := c.Merge(import2)
		return c.Add(a.actor, 1), err
	}))
	for _, h := range w.hosts {
		if h.show("set") != "imported x y" || h.show("count") != "12" {
			t.Errorf("%v has %s, %s, want imported x y and 12", h.self, h.show("set"), h.show("count"))
		}
	}
	// Changes without merged data are still sent as deltas.
	before := w.hosts[1].m.Counters().DeltasApplied
	w.wait(a, a.put("set", all, "z"))
	w.wait(a, a.add("count", all, 1))
	if n := w.hosts[1].m.Counters().DeltasApplied - before; n != 2 {
		t.Errorf("%d deltas were applied, want 2", n)
	}
}

// Steps is a user's type whose deltas are shorter than the values that they produce.
type Steps struct{ n, delta int }

const stepSize = 100

func (s Steps) Merge(o Steps) (Steps, error) { return Steps{n: max(s.n, o.n)}, nil }
func (s Steps) AppendBinary(b []byte) ([]byte, error) {
	return append(b, make([]byte, s.n*stepSize)...), nil
}
func (s Steps) Delta() (Step, bool)              { return Step(s.delta), s.delta > 0 }
func (s Steps) MergeDelta(d Step) (Steps, error) { return Steps{n: max(s.n, int(d))}, nil }
func (s Steps) ResetDelta() Steps                { return Steps{n: s.n} }

// Step is a delta of Steps: the new number of steps.
type Step int

func (s Step) Merge(o Step) (Step, error)            { return max(s, o), nil }
func (s Step) AppendBinary(b []byte) ([]byte, error) { return append(b, byte(s)), nil }

// The maximum size also applies to users' types, even if their deltas are small.
func TestCustomTypeTooLarge(t *testing.T) {
	t.Parallel()
	types := must(crdt.NewTypes(nil, crdt.DefineDelta("steps", crdt.FreeDeltas,
		func(b []byte) (Steps, error) { return Steps{n: len(b) / stepSize}, nil },
		func(b []byte) (Step, error) {
			if len(b) != 1 {
				return 0, errors.New("not one byte")
			}
			return Step(b[0]), nil
		})))
	w := newWorld(t, 1, replication.Config{Types: types, MaxEntry: 5_000}, 2)
	a, b := w.hosts[0], w.hosts[1]
	step := func(by int) replication.Reply {
		r := a.request("s", all)
		a.step(replication.Update{Request: r, Modify: func(v crdt.Value) (crdt.Value, error) {
			s, err := crdt.As[Steps](types, v)
			if err != nil {
				return v, err
			}
			return types.Value(Steps{n: s.n + by, delta: s.n + by})
		}})
		return w.wait(a, r.ID)
	}
	n := 0
	for ; n < 100; n++ {
		if r := step(1); r.Outcome != replication.Done {
			if _, large := errors.AsType[*replication.TooLargeError](r.Err); !large {
				t.Errorf("got %+v, want a TooLargeError", r)
			}
			break
		}
	}
	if n != 49 { // the header takes the rest of the limit
		t.Errorf("%d steps of %d bytes were accepted, want 49 steps", n, stepSize)
	}
	if b.m.Counters().DeltasApplied == 0 {
		t.Error("no delta was applied")
	}
	if v, _, _ := b.m.Value("s"); must(crdt.As[Steps](types, v)).n != 49 {
		t.Error("the other node does not have 49 steps")
	}
}

// A node that does not count for other nodes does not count for itself. If it counted for itself, two majorities could be disjoint.
func TestJoinersDoNotCount(t *testing.T) {
	t.Parallel()
	for _, s := range []identity.Status{identity.Joining, identity.WeaklyUp} {
		for seed := range uint64(4) {
			w := newWorld(t, seed, replication.Config{GossipInterval: time.Hour, DeltaInterval: time.Hour}, 4)
			c, d := w.hosts[2], w.hosts[3]
			w.set(c.self, s)
			w.set(d.self, s)
			w.sendMembers()
			r := w.wait(c, c.add("both", majority, 1))
			if r.Outcome != replication.Done || r.Answered != 2 || r.Required != 2 || r.Total != 2 {
				t.Errorf("%v, write to a majority: %+v, want Done with 2 of 2 answers", s, r)
			}
			if r = w.wait(c, c.get("both", majority)); r.Outcome != replication.Done || r.Answered != 2 || r.Total != 2 {
				t.Errorf("%v, read from a majority: %+v, want Done with 2 of 2 answers", s, r)
			}
			if r = w.wait(c, c.add("all", all, 1)); r.Outcome != replication.Done || r.Answered != 3 || r.Total != 3 {
				t.Errorf("%v, write to all: %+v, want Done with 3 of 3 answers", s, r)
			}
			w.cut = func(x, y *host) bool { return (x == w.hosts[0] || x == c) != (y == w.hosts[0] || y == c) }
			r = w.wait(c, c.add("k", majority, 1))
			g := w.wait(d, d.get("k", majority))
			if r.Outcome != replication.TimedOut || g.Outcome != replication.TimedOut {
				t.Errorf("%v, seed %d: write: %+v, read: %+v, want both to time out", s, seed, r, g)
			}
			w.set(w.hosts[0].self, identity.WeaklyUp)
			w.set(w.hosts[1].self, identity.WeaklyUp)
			w.sendMembers()
			if r, g := w.wait(c, c.add("k", majority, 1)), w.wait(d, d.get("k", majority)); r.Outcome != replication.TooFew || g.Outcome != replication.TooFew {
				t.Errorf("%v, no node counts: write %+v, read %+v, want TooFew for both", s, r, g)
			}
		}
	}
}

// If two nodes refuse a request, the request is sent to two other nodes at once.
func TestRefusedRequestGoesToOthers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		w := newWorld(t, seed, replication.Config{GossipInterval: time.Hour}, 5)
		w.cut = func(x, y *host) bool { return true }
		for _, h := range w.hosts[1:3] {
			h.put("k", local, "tea")
		}
		w.run(time.Second)
		w.cut = nil
		a := w.hosts[0]
		begun := w.now
		r := w.wait(a, a.add("k", majority, 1))
		if r.Outcome != replication.Done || w.now-begun > 500*time.Millisecond {
			t.Errorf("seed %d: got %+v after %v, want Done within 500 ms", seed, r, w.now-begun)
		}
	}
}

// Markers of durable keys are kept for longer. Merging two markers keeps the later expiry.
func TestMarkerExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{
		Durable: []string{"kept"}, PruneInterval: 5 * time.Second, PruneAfter: 10 * time.Second, DurablePruneAfter: 10 * time.Second, MarkerTTL: time.Hour, DurableMarkerTTL: 10 * time.Hour,
	}, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	w.wait(c, c.add("kept", all, 1))
	w.wait(c, c.add("other", all, 1))
	w.wait(c, c.put("set", all, "x"))
	c.ended = true
	w.set(c.self, identity.Removed)
	w.sendMembers()
	w.run(2 * time.Minute)
	entry := func(h *host, key string) replication.Entry {
		w.keep, w.sent = true, nil
		h.receive(a, replication.Read{Nr: 99, Key: key})
		w.keep = false
		res, ok := must(replication.DecodeMessage(w.sent[len(w.sent)-1].send.Data)).(replication.ReadResult)
		if !ok || res.Entry == nil {
			t.Fatalf("the read did not return %s", key)
		}
		return *res.Entry
	}
	wall := uint64(started.Add(w.now).UnixMilli())
	for key, want := range map[string]time.Duration{"kept": 10 * time.Hour, "other": time.Hour} {
		e := entry(b, key)
		if len(e.Pruning) != 1 || !e.Pruning[0].Performed {
			t.Fatalf("%s: got markers %+v, want one performed marker", key, e.Pruning)
		}
		left := time.Duration(e.Pruning[0].Obsolete-wall) * time.Millisecond
		if left > want || left < want-2*time.Minute {
			t.Errorf("the marker of %s expires in %v, want %v or up to 2 minutes less", key, left, want)
		}
		later, sooner := e, e
		later.Pruning = []replication.Marker{e.Pruning[0]}
		later.Pruning[0].Obsolete += 1_000_000
		sooner.Pruning = []replication.Marker{e.Pruning[0]}
		sooner.Pruning[0].Obsolete -= 1_000
		b.receive(a, replication.Gossip{Entries: []replication.Entry{later}})
		b.receive(a, replication.Gossip{Entries: []replication.Entry{sooner}})
		if got := entry(b, key).Pruning[0].Obsolete; got != later.Pruning[0].Obsolete {
			t.Errorf("%s: want a marker until %d, got one until %d", key, later.Pruning[0].Obsolete, got)
		}
	}
	// The versions of a pruned node are removed. If an update restores the history of this node,
	// the history is removed from the result.
	for _, v := range entry(b, "set").Versions {
		if v.Node == c.self {
			t.Errorf("the version of the pruned node %v remains", v.Node)
		}
	}
	old := crdt.GCounter{}.Add(c.actor, 100)
	w.wait(b, update(b, "other", local, func(v crdt.GCounter) (crdt.GCounter, error) { return v.Merge(old) }))
	if v := value(b, "other"); v.NeedsPruning(c.self) || b.show("other") != "1" {
		t.Errorf("an update restored pruned history: %s, want 1 without history", b.show("other"))
	}
}

// Equal data is not sent again.
func TestEqualDataIsNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 3)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 20 {
		w.wait(a, a.put(fmt.Sprint(i), all, strings.Repeat("x", 100)))
	}
	w.run(10 * time.Second)
	w.converge(time.Minute)
	before := [2]replication.Counters{a.m.Counters(), b.m.Counters()}
	w.run(time.Minute)
	for i, c := range []replication.Counters{a.m.Counters(), b.m.Counters()} {
		for _, k := range []replication.Kind{replication.KindGossip, replication.KindGroups, replication.KindKeys, replication.KindWant} {
			if n := c.Sent[k] - before[i].Sent[k]; n != 0 {
				t.Errorf("%d messages %v between nodes with equal data, want 0", n, k)
			}
		}
	}
	// With SendBack only entries that differ are sent back.
	e := replication.Entry{Key: "0", Value: must(value(a, "0").AppendBinary(nil))}
	sent := b.m.Counters().Sent[replication.KindGossip]
	b.receive(a, replication.Gossip{SendBack: true, Entries: []replication.Entry{e}})
	if b.m.Counters().Sent[replication.KindGossip] != sent {
		t.Error("an equal entry was sent back")
	}
}
