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

// A node that still fetches the data does not compare it, because it would receive most of it
// twice. It compares afterwards and then has all changes.
func TestNoComparisonWhileItPulls(t *testing.T) {
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
	w.cut = func(from, to *host) bool { return to == n } // nothing comes
	for _, h := range w.hosts {                          // but all can reach each other
		h.step(replication.Members{All: w.members})
	}
	w.run(5 * time.Second)
	root := replication.AppendMessage(nil, replication.Root{Digest: a.m.Root()})
	n.step(received{From: a.self, Data: root})
	a.put("set-0", local, "milk")
	w.run(time.Millisecond)
	for _, l := range w.sent {
		if l.from == n && l.send.Kind != replication.KindPull {
			t.Errorf("%v is sent while it pulls", l.send.Kind)
		}
	}
	w.cut, w.sent = nil, nil
	w.run(5 * time.Second)
	if !n.m.Synced() || n.m.Root() != a.m.Root() {
		t.Errorf("synced: %v, it holds %d keys", n.m.Synced(), len(n.m.Keys()))
	}
	if n.m.Counters().Compared == 0 {
		t.Error("it has never compared")
	}
}

// A Joining node does not compare either.
func TestNoComparisonWhileItJoins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Second}, 3)
	a := w.hosts[0]
	for i := range 300 {
		a.put(fmt.Sprint("set-", i), local, "tea")
	}
	w.run(10 * time.Second)
	n := w.start("n4", nil)
	w.set(n.self, identity.Joining)
	w.tell()
	w.keep = true
	w.run(5 * time.Second)
	n.receive(a, replication.Root{Digest: a.m.Root()})
	for _, l := range w.sent {
		if l.from == n {
			t.Errorf("%v is sent while it joins", l.send.Kind)
		}
	}
	w.set(n.self, identity.Up)
	w.tell()
	w.run(5 * time.Second)
	if !n.m.Synced() || n.m.Root() != a.m.Root() || n.m.Counters().Compared == 0 {
		t.Errorf("synced: %v, it holds %d keys and has compared %d times", n.m.Synced(), len(n.m.Keys()), n.m.Counters().Compared)
	}
	for _, l := range w.sent {
		if l.to == n && l.send.Kind == replication.KindGossip {
			t.Error("the node receives entries that it has")
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
	w.tell()
	w.run(time.Second)
	w.keep, w.cut = true, func(_, _ *host) bool { return true }
	w.set(n.self, identity.Up)
	return puller{n}
}

// asks returns the Pulls of the node after an input.
func (p puller) asks(happens func()) (pulls []letter) {
	since := len(p.w.sent)
	happens()
	for _, l := range p.w.sent[since:] {
		if l.from == p.host && l.send.Kind == replication.KindPull {
			pulls = append(pulls, l)
		}
	}
	return pulls
}

func (p puller) letIn() { p.step(replication.Members{All: p.w.members}) }

// gets answers a Pull with a chunk that has a successor.
func (p puller) gets(l letter) {
	pull, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Pull)
	if !ok {
		p.w.tb.Fatal("a Pull is none")
	}
	p.receive(l.to, replication.Chunk{Nr: pull.Nr, Bucket: pull.From, After: "k"})
}

// A node that other nodes wait for pauses between chunks; an idle node fetches without pauses.
func TestPullRestsWhileAwaited(t *testing.T) {
	t.Parallel()
	n := joining(t)
	w := n.w
	n.receive(w.hosts[0], replication.Read{Nr: 1, Key: "k"})
	pulls := n.asks(n.letIn)
	if len(pulls) != 3 {
		t.Fatalf("%d requests at a time while others wait", len(pulls))
	}
	const took = 3 * time.Millisecond
	w.now += took
	if got := n.asks(func() { n.gets(pulls[0]) }); len(got) != 0 {
		t.Errorf("%d requests without a rest", len(got))
	}
	if next := n.m.Next(); next != w.now+took {
		t.Errorf("it rests for %v", next-w.now)
	}
	w.now += took
	if got := n.asks(func() { n.apply(n.m.Tick(w.now)) }); len(got) != 1 {
		t.Errorf("%d requests after the rest", len(got))
	}
	w.now += time.Hour // no request has waited since
	if got := n.asks(func() { n.gets(pulls[1]) }); len(got) != 10 {
		t.Errorf("%d more requests although no request waits", len(got))
	}
}

// Requests of users and of other nodes make a new node pause.
func TestRequestsMakePullRest(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(n puller){
		"no request": func(puller) {},
		"read":       func(n puller) { n.receive(n.w.hosts[0], replication.Read{Nr: 1, Key: "k"}) },
		"write": func(n puller) {
			n.receive(n.w.hosts[0], replication.Write{Nr: 1, Entry: replication.Entry{Key: "k", Deleted: true}})
		},
		"update": func(n puller) { n.add("visits", majority, 1) },
		"change": func(n puller) { n.receive(n.w.hosts[0], replication.Delta{}) }, // other nodes may wait for this node as well
	} {
		want := 3
		if name == "no request" {
			want = 12
		}
		n := joining(t)
		if f(n); len(n.asks(n.letIn)) != want {
			t.Errorf("%s: not %d requests at a time", name, want)
		}
	}
}

// Chunks for a new node are small while requests wait for the sender, and large otherwise.
func TestBatchesWhileAwaited(t *testing.T) {
	t.Parallel()
	w := silent(t, 2)
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
			t.Fatalf("%d batches for one request", n)
		}
		return size
	}
	w.now += time.Hour
	if size := batch(); size < 48<<10 || size > 64<<10 {
		t.Errorf("%d bytes while no request waits", size)
	}
	a.receive(b, replication.Read{Nr: 2, Key: "k"})
	if size := batch(); size < 12<<10 || size > 16<<10 {
		t.Errorf("%d bytes while a request waits", size)
	}
}

// A node that fetches the data from here is asked after the others.
func TestPullerIsAskedLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Hour, DeltaInterval: time.Hour}, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	w.keep, w.cut = true, func(_, _ *host) bool { return true }
	asked := func() map[*host]int {
		w.sent = nil
		for i := range 40 {
			key := fmt.Sprint("k", i)
			a.add(key, majority, 1)
			a.get(key, majority)
		}
		asked := map[*host]int{}
		for _, l := range w.sent {
			asked[l.to]++
		}
		return asked
	}
	if got := asked(); got[b] == 0 || got[c] == 0 {
		t.Fatalf("%d and %d before", got[b], got[c])
	}
	a.receive(c, replication.Pull{Nr: 1, To: 1})
	if got := asked(); got[b] != 80 || got[c] != 0 {
		t.Errorf("%d messages to the node that is pulling, %d to the other", got[b], got[c])
	}
	w.now += time.Second
	if got := asked(); got[b] == 0 || got[c] == 0 {
		t.Errorf("%d and %d a while later", got[b], got[c])
	}
}
