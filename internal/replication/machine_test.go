// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// texts formats events.
func (h *host) texts() []string {
	var texts []string
	for _, e := range h.events {
		text := fmt.Sprint(e.Nr, " ", e.Key)
		switch e.Kind {
		case replication.Changed:
			text += " = " + show(e.Value)
		case replication.WasDeleted:
			text += " deleted"
		case replication.Expired:
			text += " expired"
		}
		texts = append(texts, text)
	}
	h.events = nil
	return texts
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 2)
	a, b := w.hosts[0], w.hosts[1]
	a.add("user-1", local, 1)
	w.run(time.Second)
	b.step(replication.Subscribe{Nr: 1, Key: "user-1"})
	b.step(replication.Subscribe{Nr: 2, Key: "user-", Prefix: true})
	b.step(replication.Subscribe{Nr: 3, Key: "", Prefix: true})
	b.step(replication.Subscribe{Nr: 4, Key: "user-1"})
	b.step(replication.Unsubscribe{Nr: 4})
	check := func(subject string, want ...string) {
		t.Helper()
		if got := b.texts(); !slices.Equal(got, want) {
			t.Errorf("%s: got events %q, want %q", subject, got, want)
		}
	}
	check("before the first flush")
	b.step(replication.Flush{})
	check("existing keys", "1 user-1 = 1", "2 user-1 = 1", "3 user-1 = 1")
	b.step(replication.Flush{})
	check("nothing new")
	// Several changes are one event, which all matching subscriptions receive.
	a.add("user-1", local, 1)
	w.run(100 * time.Millisecond)
	a.add("user-1", local, 1)
	a.add("user-2", local, 5)
	a.add("other", local, 9)
	w.run(time.Second)
	got := b.texts()
	slices.Sort(got)
	if want := []string{"1 user-1 = 3", "2 user-1 = 3", "2 user-2 = 5", "3 other = 9", "3 user-1 = 3", "3 user-2 = 5"}; !slices.Equal(got, want) {
		t.Errorf("changes: got events %q, want %q", got, want)
	}
	// Merging known data is not a change.
	w.wait(b, b.get("user-1", majority))
	update(b, "user-1", local, func(c crdt.GCounter) (crdt.GCounter, error) { return c, nil })
	w.run(time.Second)
	check("no change")
	b.step(replication.Unsubscribe{Nr: 3})
	a.del("user-1", local)
	w.run(time.Second)
	check("deleted", "1 user-1 deleted", "2 user-1 deleted")
	b.step(replication.Subscribe{Nr: 5, Key: "user-1"})
	b.step(replication.Flush{})
	check("deleted before", "5 user-1 deleted")
}

// Unused keys are removed on all nodes and can be created again.
func TestExpiry(t *testing.T) {
	t.Parallel()
	cfg := replication.Config{Expire: map[string]time.Duration{"session-*": time.Minute, "session-long": time.Hour}}
	w := newWorld(t, 1, cfg, 2)
	a, b := w.hosts[0], w.hosts[1]
	for _, key := range []string{"session-1", "session-2", "session-long", "other"} {
		w.wait(a, a.add(key, all, 1))
	}
	b.step(replication.Subscribe{Nr: 1, Key: "session-1"})
	w.run(time.Second)
	b.texts()
	// One key is used on the other node, by requests and by Touch.
	for i := range 12 {
		w.run(9*time.Second + time.Duration(i)*300*time.Millisecond) // vary the node that compares first
		if i%2 == 0 {
			b.step(replication.Touch{Keys: []string{"session-2"}})
		} else {
			b.get("session-2", local)
		}
	}
	for _, h := range w.hosts {
		if got := h.m.Keys(); !slices.Equal(got, []string{"other", "session-2", "session-long"}) {
			t.Errorf("%v has the keys %v, want other, session-2 and session-long", h.self, got)
		}
	}
	if got := b.texts(); !slices.Equal(got, []string{"1 session-1 expired"}) {
		t.Errorf("got events %v, want the expiry of session-1", got)
	}
	if b.m.Counters().Received[replication.KindUses]+a.m.Counters().Received[replication.KindUses] == 0 {
		t.Error("no Uses message was received")
	}
	// The key is created again. The earlier versions do not cause a gap.
	w.wait(a, a.add("session-1", local, 5))
	w.run(time.Second)
	a.add("session-1", local, 5)
	w.run(time.Second)
	if got := b.show("session-1"); got != "10" || b.m.Counters().DeltasGap != 0 {
		t.Errorf("after reuse of the key: got %s, %d gaps, want 10 and 0", got, b.m.Counters().DeltasGap)
	}
	a.put("session-set", local, "a")
	w.run(5 * time.Minute)
	a.put("session-set", local, "b")
	w.run(time.Second)
	a.put("session-set", local, "c")
	w.run(time.Second)
	if got := b.show("session-set"); got != "b c" || b.m.Counters().DeltasGap != 0 {
		t.Errorf("the set has %s, %d gaps, want b c and 0", got, b.m.Counters().DeltasGap)
	}
	if root := a.m.Root(); root != b.m.Root() {
		t.Error("the roots differ")
	}
}

// Versions of a key that is created again after expiry continue above the old ones.
func TestVersionsAfterExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Expire: map[string]time.Duration{"s": time.Minute}}, 1)
	a := w.hosts[0]
	w.cfg.Expire = nil
	b := w.start("n2", nil)
	w.set(b.self, identity.Up)
	w.sendMembers()
	for i := range 5 {
		w.wait(a, a.put("s", all, fmt.Sprint(i)))
	}
	w.run(5 * time.Minute)
	if a.show("s") != "-" || b.show("s") != "0 1 2 3 4" {
		t.Fatalf("got %s and %s, want - and 0 1 2 3 4", a.show("s"), b.show("s"))
	}
	a.put("s", local, "x")
	w.run(60 * time.Millisecond)
	known := b.m.Counters().DeltasKnown
	a.put("s", local, "y")
	w.run(60 * time.Millisecond)
	if got := b.show("s"); !strings.Contains(got, "x y") || b.m.Counters().DeltasKnown != known {
		t.Errorf("got %s, want the elements x and y", got)
	}
}

// A change on another node is a use: a key that one node changes all the time expires on no node.
func TestChangesOfOthersAreUses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Expire: map[string]time.Duration{"s": 10 * time.Second}}, 3)
	a, b := w.hosts[0], w.hosts[1]
	w.wait(b, b.add("s", all, 5))
	for range 240 {
		w.wait(a, a.add("s", majority, 1))
		w.run(500 * time.Millisecond)
	}
	for _, h := range w.hosts {
		if n := h.m.Counters().Expired; n != 0 {
			t.Errorf("%v: the key expired %d times, want 0", h.self, n)
		}
	}
	w.wait(b, b.add("s", all, 1))
	for _, h := range w.hosts {
		if got := h.show("s"); got != "246" {
			t.Errorf("%v has %s, want 246", h.self, got)
		}
	}
}

// An expired key does not return from an isolated node.
func TestExpiredKeyDoesNotReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Expire: map[string]time.Duration{"s": time.Minute}}, 2)
	a := w.hosts[0]
	w.wait(a, a.add("s", all, 1))
	entry := replication.Entry{Key: "s", Value: must(value(a, "s").AppendBinary(nil)), Used: uint64(started.UnixMilli())}
	w.run(10 * time.Minute)
	if got := a.show("s"); got != "-" {
		t.Fatalf("got %s, want an expired key", got)
	}
	a.step(received{From: w.hosts[1].self, Data: replication.AppendMessage(nil, replication.Gossip{Entries: []replication.Entry{entry}})})
	if got := a.show("s"); got != "-" {
		t.Errorf("the expired key returned with %s, want no value", got)
	}
}

func value(h *host, key string) crdt.Value {
	v, _, _ := h.m.Value(key)
	return v
}

// An update that makes a value too large is refused with the size. A value may become smaller.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{MaxEntry: 10_000}, 1)
	h := w.hosts[0]
	n := 0
	var r replication.Reply
	for n = range 1000 {
		if r = h.replies[h.put("set", local, fmt.Sprintf("%0100d", n))]; r.Outcome != replication.Done {
			break
		}
	}
	var large *replication.TooLargeError
	if r.Outcome != replication.Failed || !errors.As(r.Err, &large) || large.Size <= 10_000 || large.Size > 10_200 || large.Max != 10_000 || large.Key != "set" {
		t.Errorf("after %d elements: got %+v, want a TooLargeError of set with the limit 10,000", n, r)
	}
	if len(strings.Fields(h.show("set"))) != n {
		t.Errorf("the refused element is in the set")
	}
	h.drop("set", local, fmt.Sprintf("%0100d", 0))
	if r := h.replies[h.put("set", local, fmt.Sprintf("%0100d", n))]; r.Outcome != replication.Done {
		t.Errorf("after a removal: got %+v, want Done", r)
	}
	if r := h.replies[h.write("text", local, strings.Repeat("x", 10_001))]; r.Outcome != replication.Failed || !errors.As(r.Err, &large) {
		t.Errorf("one large write: got %+v, want a TooLargeError", r)
	}
	if h.show("text") != "-" {
		t.Error("the refused write created a key")
	}
}

// Invalid requests are refused. Requests above a limit are also refused.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{MaxRequests: 3, MaxKeys: 2}, 2)
	h := w.hosts[0]
	for _, key := range []string{"", "a*", "\xff", strings.Repeat("x", replication.MaxKey+1)} {
		if r := h.replies[h.get(key, local)]; r.Outcome != replication.Failed || !errors.Is(r.Err, replication.ErrInvalid) {
			t.Errorf("key %.10q: %+v, want Failed with ErrInvalid", key, r)
		}
	}
	for _, l := range []replication.Level{count(1), count(0), {Kind: 9}, {Kind: replication.Majority, MinCap: -1}, {Kind: replication.MajorityPlus, N: math.MaxInt}} {
		if r := h.replies[h.add("a", l, 1)]; r.Outcome != replication.Failed || !errors.Is(r.Err, replication.ErrInvalid) {
			t.Errorf("level %+v: %+v, want Failed with ErrInvalid", l, r)
		}
	}
	for range 3 {
		h.add("a", all, 1)
	}
	if r := h.replies[h.add("a", all, 1)]; r.Outcome != replication.Busy {
		t.Errorf("above MaxRequests: got %+v, want Busy", r)
	}
	w.run(time.Second)
	h.add("b", local, 1)
	for _, id := range []uint64{h.add("c", local, 1), h.del("d", local)} {
		if r := h.replies[id]; r.Outcome != replication.Failed || !errors.Is(r.Err, replication.ErrFull) {
			t.Errorf("above MaxKeys: got %+v, want Failed with ErrFull", r)
		}
	}
}

// Messages of nodes that are not members are dropped.
func TestMessagesOfNonMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Roles: []string{"data"}}, 0)
	h := w.start("n1", nil)
	nonMember, downed, other := node("stranger", 7), node("z", 8), node("y", 9)
	roles := []string{"data"}
	h.step(replication.Members{All: []identity.Member{
		{Node: h.self, Status: identity.Up, Roles: roles}, {Node: other, Status: identity.Up}, {Node: downed, Status: identity.Down, Roles: roles},
	}})
	v := must((*crdt.Types)(nil).Value(crdt.Flag{}.Enable()))
	data := replication.AppendMessage(nil, replication.Write{Nr: 1, Entry: replication.Entry{Key: "flag", Value: must(v.AppendBinary(nil))}})
	for _, from := range []identity.Node{nonMember, downed, other} {
		if e := h.m.Step(0, batch(received{From: from, Data: data})); len(e.Send)+len(e.Values) != 0 {
			t.Errorf("a message of %v had effects %+v, want none", from, e)
		}
	}
	if n := h.m.ReplicaCount(); n != 1 {
		t.Errorf("%d replicas, want 1", n)
	}
}

// A removed node stops and answers its open requests.
func TestRemoved(t *testing.T) {
	t.Parallel()
	w := durable(t, 2)
	a := w.hosts[0]
	a.held = true
	ids := []uint64{a.add("a", all, 1), a.add("kept", local, 1)}
	w.set(a.self, identity.Removed)
	a.sendMembers()
	for _, id := range ids {
		if r := a.replies[id]; r.Outcome != replication.Stopped {
			t.Errorf("got %+v, want Stopped", r)
		}
	}
	if !a.stopped || a.m.Next() != replication.Never {
		t.Errorf("stopped: %t, want true and no further tick", a.stopped)
	}
}

// Values of another type are refused, and the writer gets an error.
func TestTypeMismatchOnOtherNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.cut = func(_, _ *host) bool { return true }
	a.add("x", local, 1)
	b.put("x", local, "tea")
	w.run(time.Second)
	w.cut = nil
	r := w.wait(a, a.add("x", majority, 1))
	if r.Outcome != replication.TimedOut || !errors.Is(r.Err, replication.ErrType) || r.Answered != 1 {
		t.Errorf("write: %+v, want TimedOut with ErrType and 1 answer", r)
	}
	r = w.wait(a, a.get("x", majority))
	if r.Outcome != replication.Failed || !errors.Is(r.Err, replication.ErrType) {
		t.Errorf("read: %+v, want Failed with ErrType", r)
	}
	if b.show("x") != "tea" || b.m.Counters().Refused == 0 {
		t.Errorf("b has %s, want tea and a refused value", b.show("x"))
	}
}

// Concurrent changes can make a value larger than MaxMessage. Such a value is sent in parts: by
// gossip, to a new node, and in a read. Malformed or truncated parts are dropped.
func TestValueLargerThanMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{MaxMessage: 64 << 10, MaxEntry: 50 << 10}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.cut = func(_, _ *host) bool { return true }
	for i, h := range w.hosts {
		for j := range 4 {
			h.put("set", local, strings.Repeat(fmt.Sprintf("%d%d", i, j), 6<<10))
		}
	}
	w.run(time.Second)
	w.cut = nil
	w.converge(time.Minute)
	if n := len(strings.Fields(b.show("set"))); n != 8 {
		t.Fatalf("b has %d words, want 8", n)
	}
	n := w.start("n9", nil)
	w.set(n.self, identity.Up)
	w.sendMembers()
	if r := w.wait(n, n.get("set", all)); r.Outcome != replication.Done || n.show("set") != a.show("set") {
		t.Errorf("the new node read %+v, want the set of a", r)
	}
	if n.m.Counters().Received[replication.KindPart] == 0 {
		t.Error("no Part was received")
	}
	if r := a.replies[a.put("set", local, strings.Repeat("x", 1<<10))]; r.Outcome != replication.Failed {
		t.Errorf("a larger value: got %+v, want Failed", r)
	}
	part := func(p replication.Part) {
		a.step(received{From: b.self, Data: replication.AppendMessage(nil, p)})
	}
	before := a.m.Counters().Dropped[replication.DropParts]
	for nr := range uint64(10) {
		part(replication.Part{Nr: 100 + nr, Index: 0, Count: 2, Data: []byte{1}})
	}
	inner := replication.AppendMessage(nil, replication.Part{Nr: 1, Index: 0, Count: 1, Data: []byte{1}})
	part(replication.Part{Nr: 200, Index: 0, Count: 1, Data: inner})
	part(replication.Part{Nr: 201, Index: 1, Count: 2, Data: []byte{1}})
	part(replication.Part{Nr: 109, Index: 0, Count: 2, Data: []byte{1}})
	if got := a.m.Counters().Dropped[replication.DropParts] - before; got != 10 {
		t.Errorf("%d parts were dropped, want 10", got)
	}
}
