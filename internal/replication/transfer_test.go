// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// A node that still fetches the data does not compare it, because it would receive most of the data
// twice. It compares afterwards and then has all changes.
func TestNoComparisonWhilePulling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Second}, 3)
	a := w.hosts[0]
	for i := range 300 {
		a.put(fmt.Sprint("set-", i), local, "tea")
	}
	w.run(10 * time.Second)
	n := w.start("n4", nil)
	w.set(n.self, identity.Up)
	w.keep = true
	w.cut = func(from, to *host) bool { return to == n } // no message arrives at n
	for _, h := range w.hosts {                          // but the cluster reports all nodes as reachable
		h.step(replication.Members{All: w.members})
	}
	w.run(5 * time.Second)
	root := replication.AppendMessage(nil, replication.Root{Digest: a.m.Root()})
	n.step(received{From: a.self, Data: root})
	a.put("set-0", local, "milk")
	w.run(time.Millisecond)
	for _, l := range w.sent {
		if l.from == n && l.send.Kind != replication.KindPull {
			t.Errorf("the node sent %v while it pulls, want only Pulls", l.send.Kind)
		}
	}
	w.cut, w.sent = nil, nil
	w.run(5 * time.Second)
	if !n.m.Synced() || n.m.Root() != a.m.Root() {
		t.Errorf("synced: %v, %d keys, want a synced node with the data of a", n.m.Synced(), len(n.m.Keys()))
	}
	if n.m.Counters().Compared == 0 {
		t.Error("the node did not compare its data after the pull")
	}
}

// A Joining node does not compare its data.
func TestNoComparisonWhileJoining(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Second}, 3)
	a := w.hosts[0]
	for i := range 300 {
		a.put(fmt.Sprint("set-", i), local, "tea")
	}
	w.run(10 * time.Second)
	n := w.start("n4", nil)
	w.set(n.self, identity.Joining)
	w.sendMembers()
	w.keep = true
	w.run(5 * time.Second)
	n.receive(a, replication.Root{Digest: a.m.Root()})
	for _, l := range w.sent {
		if l.from == n {
			t.Errorf("the node sent %v while it is Joining, want no message", l.send.Kind)
		}
	}
	w.set(n.self, identity.Up)
	w.sendMembers()
	w.run(5 * time.Second)
	if !n.m.Synced() || n.m.Root() != a.m.Root() || n.m.Counters().Compared == 0 {
		t.Errorf("synced: %v, %d keys, %d comparisons, want a synced node with the data of a, and at least one comparison", n.m.Synced(), len(n.m.Keys()), n.m.Counters().Compared)
	}
	for _, l := range w.sent {
		if l.to == n && l.send.Kind == replication.KindGossip {
			t.Error("the node received entries that it already has")
		}
	}
}

// puller is a new node that receives only messages of the test.
type puller struct {
	*host
}

// joining returns a puller that is Joining.
func joining(t *testing.T) puller {
	t.Helper()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour}, 3)
	n := w.start("n4", nil)
	w.set(n.self, identity.Joining)
	w.sendMembers()
	w.run(time.Second)
	w.keep, w.cut = true, func(_, _ *host) bool { return true }
	w.set(n.self, identity.Up)
	return puller{n}
}

// pullsAfter returns the Pulls that the node sends after an input.
func (p puller) pullsAfter(input func()) (pulls []envelope) {
	since := len(p.w.sent)
	input()
	for _, l := range p.w.sent[since:] {
		if l.from == p.host && l.send.Kind == replication.KindPull {
			pulls = append(pulls, l)
		}
	}
	return pulls
}

func (p puller) becomeUp() { p.step(replication.Members{All: p.w.members}) }

// answer answers a Pull with a chunk that is not the last one.
func (p puller) answer(l envelope) {
	pull, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Pull)
	if !ok {
		p.w.tb.Fatal("the message is not a Pull")
	}
	p.receive(l.to, replication.Chunk{Nr: pull.Nr, Bucket: pull.From, After: "k"})
}

// If other nodes wait for a new node, the new node pauses between chunks. An idle node fetches
// without pauses.
func TestPullPausesWhileAwaited(t *testing.T) {
	t.Parallel()
	n := joining(t)
	w := n.w
	n.receive(w.hosts[0], replication.Read{Nr: 1, Key: "k"})
	pulls := n.pullsAfter(n.becomeUp)
	if len(pulls) != 3 {
		t.Fatalf("%d requests at a time while others wait, want 3", len(pulls))
	}
	const took = 3 * time.Millisecond
	w.now += took
	if got := n.pullsAfter(func() { n.answer(pulls[0]) }); len(got) != 0 {
		t.Errorf("%d requests were sent without a pause, want 0", len(got))
	}
	if next := n.m.Next(); next != w.now+took {
		t.Errorf("the pause is %v, want the duration of the chunk", next-w.now)
	}
	w.now += took
	if got := n.pullsAfter(func() { n.apply(n.m.Tick(w.now)) }); len(got) != 1 {
		t.Errorf("%d requests were sent after the pause, want 1", len(got))
	}
	w.now += time.Hour // no request has waited during this time
	if got := n.pullsAfter(func() { n.answer(pulls[1]) }); len(got) != 10 {
		t.Errorf("%d requests were sent although no request waits, want 10", len(got))
	}
}

// Requests of users and of other nodes make a new node pause.
func TestRequestsMakePullPause(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(n puller){
		"no request": func(puller) {},
		"read":       func(n puller) { n.receive(n.w.hosts[0], replication.Read{Nr: 1, Key: "k"}) },
		"write": func(n puller) {
			n.receive(n.w.hosts[0], replication.Write{Nr: 1, Entry: replication.Entry{Key: "k", Deleted: true}})
		},
		"update": func(n puller) { n.add("visits", majority, 1) },
		"change": func(n puller) { n.receive(n.w.hosts[0], replication.Delta{}) }, // a delta shows that requests are running
	} {
		want := 3
		if name == "no request" {
			want = 12
		}
		n := joining(t)
		if f(n); len(n.pullsAfter(n.becomeUp)) != want {
			t.Errorf("%s: the number of requests at a time is not %d", name, want)
		}
	}
}

// Chunks for a new node are small while requests wait for the sender, and large otherwise.
func TestChunkSizeWhileAwaited(t *testing.T) {
	t.Parallel()
	w := withoutGossip(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	for i := range 1_000 {
		a.put(fmt.Sprint("set-", i), local, strings.Repeat("x", 500))
	}
	w.keep, w.cut = true, func(_, _ *host) bool { return true }
	batch := func() int {
		since := len(w.sent)
		a.receive(b, replication.Pull{Nr: 1, To: 1024})
		n, size := w.sentBy(a, replication.KindChunk, since)
		if n != 1 {
			t.Fatalf("%d chunks for one request, want 1", n)
		}
		return size
	}
	w.now += time.Hour
	if size := batch(); size < 48<<10 || size > 64<<10 {
		t.Errorf("a chunk has %d bytes while no request waits, want 48 to 64 KiB", size)
	}
	a.receive(b, replication.Read{Nr: 2, Key: "k"})
	if size := batch(); size < 12<<10 || size > 16<<10 {
		t.Errorf("a chunk has %d bytes while a request waits, want 12 to 16 KiB", size)
	}
}

// A request is sent last to a node that is fetching data from the sender.
func TestPullingNodeIsLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour, DeltaInterval: time.Hour}, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	w.keep, w.cut = true, func(_, _ *host) bool { return true }
	messages := func() map[*host]int {
		w.sent = nil
		for i := range 40 {
			key := fmt.Sprint("k", i)
			a.add(key, majority, 1)
			a.get(key, majority)
		}
		messages := map[*host]int{}
		for _, l := range w.sent {
			messages[l.to]++
		}
		return messages
	}
	if got := messages(); got[b] == 0 || got[c] == 0 {
		t.Fatalf("sent %d and %d messages before the Pull, want some to both nodes", got[b], got[c])
	}
	a.receive(c, replication.Pull{Nr: 1, To: 1})
	if got := messages(); got[b] != 80 || got[c] != 0 {
		t.Errorf("sent %d messages to the idle node, %d to the pulling node, want 80 and 0", got[b], got[c])
	}
	w.now += time.Second
	if got := messages(); got[b] == 0 || got[c] == 0 {
		t.Errorf("sent %d and %d messages a second later, want some to both nodes", got[b], got[c])
	}
}
