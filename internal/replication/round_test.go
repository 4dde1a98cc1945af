// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// receivers returns the nodes that received a message of a kind.
func (w *world) receivers(kind replication.Kind) (all []*host) {
	for _, l := range w.sent {
		if l.send.Kind == kind {
			all = append(all, l.to)
		}
	}
	return all
}

// A request is sent to the needed nodes first. After a fifth of the time it is sent to up to ten
// other nodes.
func TestSecondWave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 25)
	w.run(time.Second)
	a := w.hosts[0]
	w.wait(a, a.add("x", all, 1))
	w.run(2 * time.Second)
	w.keep = true
	silent := map[*host]bool{}
	w.cut = func(_, to *host) bool { return silent[to] }
	for subject, f := range map[replication.Kind]func() uint64{
		replication.KindRead:  func() uint64 { return a.get("x", majority) },
		replication.KindDelta: func() uint64 { return a.add("x", majority, 1) },
	} {
		w.sent = nil
		clear(silent)
		begun := w.now
		id := f()
		first := w.receivers(subject)
		if len(first) != 12 {
			t.Errorf("%v: the request was first sent to %d nodes, want 12", subject, len(first))
		}
		for _, h := range first[:8] {
			silent[h] = true
		}
		r := w.wait(a, id)
		if r.Outcome != replication.Done || r.Answered < 13 {
			t.Errorf("%v: %+v, want Done and at least 13 answers", subject, r)
		}
		if at := w.now - begun; at < time.Second || at > 1100*time.Millisecond {
			t.Errorf("%v: answered after %v, want about 1 s", subject, at)
		}
		second := w.receivers(replication.KindRead)
		if subject == replication.KindDelta {
			second = w.receivers(replication.KindWrite) // the second wave includes nodes of the first wave that have not answered
		}
		if want := map[replication.Kind]int{replication.KindRead: 12 + 10, replication.KindDelta: 8 + 10}[subject]; len(second) != want {
			t.Errorf("%v: the request was sent to %d nodes in total, want %d", subject, len(second), want)
		}
	}
}

// A request is sent to unreachable nodes last. With PreferOldest, it is sent to the oldest nodes
// first.
func TestRequestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 7)
	a := w.hosts[0]
	unreachable := []*host{w.hosts[1], w.hosts[2]}
	w.cut = func(x, y *host) bool { return slices.Contains(unreachable, x) || slices.Contains(unreachable, y) }
	w.sendMembers()
	w.keep = true
	for range 20 {
		w.sent = nil
		if r := w.wait(a, a.get("x", majority)); r.Outcome != replication.NotFound || len(w.receivers(replication.KindRead)) != 3 {
			t.Fatalf("got %+v, and the request was sent to %d nodes, want NotFound and 3 nodes", r, len(w.receivers(replication.KindRead)))
		}
	}
	// The order of ages is the reverse of the order of names.
	w.cut = nil
	w.run(time.Minute) // all nodes have fetched the data
	for i := range w.members {
		w.members[i].UpNumber = int32(100 - i)
	}
	w.sendMembers()
	oldest := []*host{w.hosts[6], w.hosts[5], w.hosts[4]}
	for _, in := range []func(r replication.Request) replication.Input{
		func(r replication.Request) replication.Input { return replication.Get{Request: r} },
		func(r replication.Request) replication.Input { return replication.Delete{Request: r} },
	} {
		w.sent = nil
		r := a.request("y", majority)
		r.PreferOldest = true
		a.step(in(r))
		got := append(w.receivers(replication.KindRead), w.receivers(replication.KindWrite)...)
		if !slices.Equal(got, oldest) {
			t.Errorf("the request was sent to %d nodes, want only the 3 oldest ones", len(got))
		}
	}
}

// A read with repair is answered when as many nodes hold the result as took part in the read.
// Without repair, a later read may return an older value.
func TestRepairPeers(t *testing.T) {
	t.Parallel()
	for _, repair := range []bool{false, true} {
		w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
		writer, reader, third := w.hosts[0], w.hosts[1], w.hosts[2]
		w.wait(writer, writer.write("r", all, "old"))
		w.run(time.Second)
		w.cut = func(_, _ *host) bool { return true }
		writer.write("r", local, "new")
		w.run(time.Second)
		// The reader sends its request to the writer and the third node.
		w.cut = nil
		r := reader.request("r", count(3))
		reader.step(replication.Get{Request: r, RepairPeers: repair})
		if got := w.wait(reader, r.ID); got.Outcome != replication.Done || show(got.Value) != "new" || got.Answered != 3 {
			t.Errorf("repair %t: %+v, want Done with new and 3 answers", repair, got)
		}
		if want := map[bool]string{false: "old", true: "new"}[repair]; third.show("r") != want || reader.show("r") != "new" {
			t.Errorf("repair %t: the third node has %s, the reader %s, want new on the reader, and on the third node only with repair", repair, third.show("r"), reader.show("r"))
		}
	}
}

// A read that cannot repair enough nodes fails.
func TestRepairFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	writer, reader, third := w.hosts[0], w.hosts[1], w.hosts[2]
	w.wait(writer, writer.write("r", all, "old"))
	w.run(time.Second)
	w.cut = func(_, _ *host) bool { return true }
	writer.write("r", local, "new")
	w.run(time.Second)
	w.cut = nil
	r := reader.request("r", count(3))
	reader.step(replication.Get{Request: r, RepairPeers: true})
	for len(w.post) > 0 && reader.m.Counters().Received[replication.KindReadResult] < 2 {
		w.next(w.now + time.Second)
	}
	w.cut = func(_, to *host) bool { return to == third }
	if got := w.wait(reader, r.ID); got.Outcome != replication.TimedOut || got.Answered != 2 {
		t.Errorf("got %+v, want TimedOut and 2 answers", got)
	}
}

// A node reads its own changes, at any level.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 3)
	a := w.hosts[0]
	for i := range 10 {
		a.add("x", majority, 1)
		for _, l := range []replication.Level{local, majority} {
			if r := w.wait(a, a.get("x", l)); r.Outcome != replication.Done || show(r.Value) != fmt.Sprint(i+1) {
				t.Errorf("after %d updates: got %+v, want the last value", i+1, r)
			}
		}
	}
	if c := a.values["x"]; show(c.Value) != "10" {
		t.Errorf("the published value is %s, want 10", show(c.Value))
	}
}

// The number of written replicas plus the number of read replicas exceeds the number of nodes. A
// majority read therefore finds majority writes, even if nodes have joined in between.
func TestMajoritiesOverlap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		w := newWorld(t, seed, replication.Config{GossipInterval: time.Hour}, 5)
		a := w.hosts[seed%5]
		w.cut = func(_, to *host) bool { return to != a && w.rnd.IntN(3) == 0 }
		if r := w.wait(a, a.add("x", majority, 7)); r.Outcome != replication.Done {
			continue
		}
		w.cut = nil
		n := w.start("n6", nil)
		w.set(n.self, identity.Up)
		n.step(replication.Members{All: []identity.Member{}}) // the new node has no data
		w.sendMembers()
		for _, h := range w.hosts {
			r := w.wait(h, h.get("x", majority))
			if r.Outcome != replication.Done || show(r.Value) != "7" {
				t.Errorf("seed %d: %v read %+v, want 7", seed, h.self, r)
			}
		}
	}
}

// Refusals of an earlier request do not affect a later request.
func TestRequestAfterRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	a, b := w.hosts[0], w.hosts[1]
	b.put("visits", local, "another type")
	if r := w.wait(a, a.add("visits", all, 1)); r.Outcome != replication.TimedOut || r.Err == nil {
		t.Errorf("a key of another type: got %+v, want TimedOut with an error", r)
	}
	if r := w.wait(a, a.add("other", all, 1)); r.Outcome != replication.Done || r.Answered != 3 {
		t.Errorf("the next request: got %+v, want Done and 3 answers", r)
	}
}

// Earlier replies are not modified.
func TestRepliesShareNoMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.keep = true
	a.add("visits", local, 1)
	value := must(value(a, "visits").AppendBinary(nil))
	for i := range uint64(3) {
		b.receive(a, replication.Write{Nr: i + 1, Entry: replication.Entry{Key: "visits", Value: value}})
	}
	var nrs []uint64
	for _, l := range w.sent {
		if l.from != b {
			continue
		}
		if ack, is := must(replication.DecodeMessage(l.send.Data)).(replication.Ack); is {
			nrs = append(nrs, ack.Nr)
		}
	}
	if !slices.Equal(nrs, []uint64{1, 2, 3}) {
		t.Errorf("the acknowledged numbers are %v, want [1 2 3]", nrs)
	}
}
