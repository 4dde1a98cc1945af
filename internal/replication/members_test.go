// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/replication"
)

var (
	local    = replication.Level{}
	majority = replication.Level{Kind: replication.Majority}
	all      = replication.Level{Kind: replication.All}
)

func count(n int) replication.Level { return replication.Level{Kind: replication.Count, N: n} }

func TestRequired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		level replication.Level
		want  []int // wanted results for 1, 2, ... nodes
	}{
		{local, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{majority, []int{1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7}},
		{replication.Level{Kind: replication.Majority, MinCap: 3}, []int{1, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7}},
		{replication.Level{Kind: replication.Majority, MinCap: 5}, []int{1, 2, 3, 4, 5, 5, 5, 5, 5, 6, 6, 7}},
		{replication.Level{Kind: replication.MajorityPlus, N: 1}, []int{1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8}},
		{replication.Level{Kind: replication.MajorityPlus, N: 2}, []int{1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9}},
		{replication.Level{Kind: replication.MajorityPlus, N: 3}, []int{1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10}},
		{replication.Level{Kind: replication.MajorityPlus, N: 1, MinCap: 5}, []int{1, 2, 3, 4, 5, 5, 5, 6, 6, 7, 7, 8}},
		{all, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{count(3), []int{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
	} {
		for i, want := range c.want {
			if got := c.level.Required(i + 1); got != want {
				t.Errorf("%+v of %d nodes: got %d, want %d", c.level, i+1, got, want)
			}
		}
	}
}

// When a majority write is answered, a majority holds the value. The reply reports how many nodes
// hold it.
func TestWriteMajority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 5)
	r := w.wait(w.hosts[0], w.hosts[0].add("visits", majority, 5))
	if r.Outcome != replication.Done || r.Answered < 3 || r.Required != 3 || r.Total != 5 || show(r.Value) != "5" {
		t.Errorf("got %+v, want Done with the value 5 and 3 of 5 replicas", r)
	}
	have := 0
	for _, h := range w.hosts {
		if h.show("visits") == "5" {
			have++
		}
	}
	if have < 3 {
		t.Errorf("%d nodes have the value, want at least 3", have)
	}
}

// If two of five nodes are reachable, a majority write fails at its timeout. The value spreads
// after the partition.
func TestQuorumFailsInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, replication.Config{}, 5)
	side := w.hosts[:2]
	w.cut = func(a, b *host) bool { return slices.Contains(side, a) != slices.Contains(side, b) }
	w.sendMembers()
	h := w.hosts[0]
	begun := w.now
	r := w.wait(h, h.add("visits", majority, 5))
	if r.Outcome != replication.TimedOut || r.Answered != 2 || r.Required != 3 || w.now-begun != 5*time.Second {
		t.Errorf("got %+v after %v, want TimedOut with 2 of 3 answers after 5 s", r, w.now-begun)
	}
	if want := []identity.Node{w.hosts[2].self, w.hosts[3].self, w.hosts[4].self}; !slices.Equal(r.Silent, want) || r.Err != nil {
		t.Errorf("silent nodes %v, want %v: %v", r.Silent, want, r.Err)
	}
	r = w.wait(h, h.get("visits", majority))
	if r.Outcome != replication.TimedOut || r.Answered != 2 {
		t.Errorf("%+v, want TimedOut and 2 answers", r)
	}
	w.cut = nil
	w.sendMembers()
	w.converge(time.Minute)
	if got := w.hosts[4].show("visits"); got != "5" {
		t.Errorf("an unreachable node has %s after the partition, want 5", got)
	}
}

// A request does not wait for replicas that do not exist.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, replication.Config{}, 2)
	h := w.hosts[0]
	if r := h.replies[h.add("visits", count(3), 1)]; r.Outcome != replication.TooFew || r.Required != 3 || r.Total != 2 {
		t.Errorf("update: %+v, want TooFew with 3 required of 2 replicas", r)
	}
	if r := h.replies[h.get("visits", count(3))]; r.Outcome != replication.TooFew {
		t.Errorf("get: %+v, want TooFew", r)
	}
	if r := h.replies[h.del("other", count(3))]; r.Outcome != replication.TooFew {
		t.Errorf("delete: %+v, want TooFew", r)
	}
	w.run(time.Second)
	if got := w.hosts[1].show("visits"); got != "1" {
		t.Errorf("the other node has %s, want 1", got)
	}
	alone := newWorld(t, 3, replication.Config{}, 1).hosts[0]
	for _, l := range []replication.Level{majority, all, {Kind: replication.MajorityPlus, N: 5}} {
		if r := alone.replies[alone.add("visits", l, 1)]; r.Outcome != replication.Done {
			t.Errorf("%v on one node: %+v, want Done", l.Kind, r)
		}
	}
	if r := alone.replies[alone.add("visits", count(2), 1)]; r.Outcome != replication.TooFew {
		t.Errorf("count 2 of one node: got %+v, want TooFew", r)
	}
}

// WeaklyUp and Joining nodes do not count in a quorum. Exiting nodes count, except at All and
// MajorityPlus.
func TestCountingNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, replication.Config{}, 3)
	w.keep = true
	h := w.hosts[0]
	w.set(w.hosts[1].self, identity.Exiting)
	weak, joining := w.start("n8", nil), w.start("n9", nil)
	w.set(weak.self, identity.WeaklyUp)
	w.set(joining.self, identity.Joining)
	w.sendMembers()
	if got := h.m.ReplicaCount(); got != 3 {
		t.Errorf("%d replicas, want 3", got)
	}
	if r := w.wait(h, h.add("a", majority, 1)); r.Total != 3 || r.Required != 2 {
		t.Errorf("majority: %+v, want 2 required of 3 replicas", r)
	}
	for _, l := range []replication.Level{all, {Kind: replication.MajorityPlus, N: 4}} {
		if r := w.wait(h, h.add("a", l, 1)); r.Total != 2 || r.Required != 2 {
			t.Errorf("%v: %+v, want 2 required of 2 replicas", l.Kind, r)
		}
	}
	w.run(5 * time.Second)
	if weak.show("a") != "3" {
		t.Errorf("a WeaklyUp node has %s, want 3", weak.show("a"))
	}
	asks := []replication.Kind{replication.KindWrite, replication.KindDelta, replication.KindRead, replication.KindRoot}
	for _, l := range w.sent {
		if l.to == joining && slices.Contains(asks, l.send.Kind) {
			t.Errorf("%v sent %v to a Joining node, want no request", l.from.self, l.send.Kind)
		}
	}
	// A Joining node may send requests.
	if r := w.wait(joining, joining.add("b", majority, 1)); r.Outcome != replication.Done {
		t.Errorf("a write of a Joining node: got %+v, want Done", r)
	}
}

func TestModifyFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5, replication.Config{}, 2)
	h := w.hosts[0]
	h.add("visits", local, 1)
	cause := errors.New("no")
	id := update(h, "visits", majority, func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(h.actor, 5), cause })
	if r := h.replies[id]; r.Outcome != replication.Failed || !errors.Is(r.Err, cause) {
		t.Errorf("a function with an error: got %+v, want Failed with the error of the function", r)
	}
	id = update(h, "visits", majority, func(crdt.GCounter) (crdt.GCounter, error) { panic("oh") })
	var panicked *panics.Error
	if r := h.replies[id]; r.Outcome != replication.Failed || !errors.As(r.Err, &panicked) || panicked.Value != "oh" {
		t.Errorf("a function that panics: got %+v, want Failed with the value of the panic", r)
	}
	id = h.put("visits", majority, "x")
	if r := h.replies[id]; r.Outcome != replication.Failed || !errors.Is(r.Err, crdt.ErrType) {
		t.Errorf("a function for another type: got %+v, want Failed with ErrType", r)
	}
	r := h.request("visits", local)
	h.step(replication.Update{Request: r, Modify: func(crdt.Value) (crdt.Value, error) {
		return (*crdt.Types)(nil).Value(crdt.Flag{}.Enable())
	}})
	if r := h.replies[r.ID]; r.Outcome != replication.Failed || !errors.Is(r.Err, replication.ErrType) {
		t.Errorf("a function that returns another type: got %+v, want Failed with ErrType", r)
	}
	for subject, change := range map[string]func(crdt.GCounter) (crdt.GCounter, error){
		"first": func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(w.hosts[1].actor, 1), nil },
		"then":  func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(h.actor, 1).Add(w.hosts[1].actor, 1), nil },
	} {
		if r := h.replies[update(h, "visits", majority, change)]; r.Outcome != replication.Failed || !errors.Is(r.Err, replication.ErrForeign) {
			t.Errorf("the Self of another node, %s: got %+v, want Failed with ErrForeign", subject, r)
		}
	}
	if h.show("visits") != "1" {
		t.Errorf("the counter is %s, want 1", h.show("visits"))
	}
}

// The reply of a timed out request reports refusals.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5, replication.Config{}, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	w.cut = func(x, y *host) bool { return x != y }
	w.sendMembers()
	b.put("visits", local, "x")
	c.put("visits", local, "x")
	w.cut = func(x, y *host) bool { return x == c || y == c }
	w.sendMembers()
	r := w.wait(a, a.add("visits", majority, 1))
	if r.Outcome != replication.TimedOut || !errors.Is(r.Err, replication.ErrType) || !slices.Equal(r.Silent, []identity.Node{c.self}) {
		t.Errorf("one node refuses: got %+v, want TimedOut with ErrType and the silent node c", r)
	}
	w.cut = nil
	w.sendMembers()
	begun := w.now
	r = w.wait(a, a.add("visits", majority, 1))
	if r.Outcome != replication.TimedOut || !errors.Is(r.Err, replication.ErrType) || len(r.Silent) > 0 || w.now-begun > time.Second {
		t.Errorf("both nodes refuse: got %+v after %v, want TimedOut with ErrType and no silent node within 1 s", r, w.now-begun)
	}
}

// The result of the function is merged into the current value.
func TestUpdateMerges(t *testing.T) {
	t.Parallel()
	h := newWorld(t, 6, replication.Config{}, 1).hosts[0]
	for _, e := range []string{"a", "b", "c"} {
		update(h, "tags", local, func(crdt.GSet[string]) (crdt.GSet[string], error) { return crdt.GSet[string]{}.Add(e) })
	}
	v, _, _ := h.m.Value("tags")
	if got := must(must(crdt.As[crdt.GSet[string]](nil, v)).Elements()); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %v, want [a b c]", got)
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 7, replication.Config{}, 3)
	h := w.hosts[0]
	w.wait(h, h.add("visits", all, 1))
	if r := w.wait(h, h.del("visits", majority)); r.Outcome != replication.Done || r.Answered < 2 {
		t.Errorf("delete: %+v, want Done and at least 2 answers", r)
	}
	for subject, id := range map[string]uint64{
		"update": h.add("visits", majority, 1), "get": h.get("visits", local), "delete": h.del("visits", majority),
	} {
		if r := w.wait(h, id); r.Outcome != replication.Deleted {
			t.Errorf("%s: %+v, want Deleted", subject, r)
		}
	}
	w.converge(time.Minute)
	for _, o := range w.hosts {
		if o.show("visits") != "deleted" || len(o.m.Keys()) != 0 {
			t.Errorf("%v has %s, keys %v, want deleted and no keys", o.self, o.show("visits"), o.m.Keys())
		}
	}
	if r := w.wait(h, h.get("visits", majority)); r.Outcome != replication.Deleted {
		t.Errorf("get: %+v, want Deleted", r)
	}
	if r := w.wait(h, h.del("missing", majority)); r.Outcome != replication.Done {
		t.Errorf("delete of a missing key: %+v, want Done", r)
	}
}

func TestReadMajority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8, replication.Config{}, 3)
	a, b := w.hosts[0], w.hosts[1]
	if r := w.wait(b, b.get("cart", majority)); r.Outcome != replication.NotFound || r.Answered != 2 {
		t.Errorf("a key on no node: got %+v, want NotFound and 2 answers", r)
	}
	if r := b.replies[b.get("cart", local)]; r.Outcome != replication.NotFound {
		t.Errorf("a local read of a missing key: got %+v, want NotFound", r)
	}
	a.put("cart", local, "tea")
	// The request is sent to both other nodes. The read finds the value, and b keeps it.
	if r := w.wait(b, b.get("cart", all)); r.Outcome != replication.Done || show(r.Value) != "tea" {
		t.Errorf("got %+v, want Done with tea", r)
	}
	if got := b.show("cart"); got != "tea" {
		t.Errorf("after the read, b has %s, want tea", got)
	}
}
