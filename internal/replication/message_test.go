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

func (h *host) receive(from *host, msg replication.Message) {
	h.step(received{From: from.self, Data: replication.AppendMessage(nil, msg)})
}

// A message that lists a bucket twice is malformed, because short messages must be cheap to
// process.
func TestRepeatedBucket(t *testing.T) {
	t.Parallel()
	lists := replication.Keys{Lists: []replication.KeyList{{Bucket: 7, Complete: true}, {Bucket: 3, Complete: true}}}
	if _, err := replication.DecodeMessage(replication.AppendMessage(nil, lists)); err != nil {
		t.Errorf("unsorted buckets: got error %v, want none", err)
	}
	lists.Lists = append(lists.Lists, replication.KeyList{Bucket: 7, Complete: true})
	if _, err := replication.DecodeMessage(replication.AppendMessage(nil, lists)); !errors.Is(err, replication.ErrMalformed) {
		t.Errorf("a repeated bucket: got error %v, want ErrMalformed", err)
	}
}

func TestRepeatedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Durable: []string{"*"}}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.wait(b, b.put("s", local, strings.Repeat("x", 1000)))
	var d replication.Delta
	var g replication.Gossip
	var set crdt.ORSet[string]
	for i := range 100 {
		set = must(set.ResetDelta().Add(a.actor, fmt.Sprint(i)))
		delta, _ := set.Delta()
		n := uint64(i + 1)
		d.Items = append(d.Items, replication.Item{Key: "s", From: n, To: n, Delta: must(delta.AppendBinary(nil))})
		one := must(crdt.ORSet[string]{}.Add(a.actor, fmt.Sprint(i)))
		g.Entries = append(g.Entries, replication.Entry{Key: "s", Value: must(one.AppendBinary(nil))})
	}
	merged := func() uint64 { return b.m.Counters().Merged + b.m.Counters().DeltasApplied }
	for subject, msg := range map[string]replication.Message{"delta": d, "gossip": g} {
		b.storing = nil
		before := merged()
		b.receive(a, msg)
		if n := merged() - before; n > 1 || len(b.storing) > 1 {
			t.Errorf("%s: %d entries merged, %d stored, want at most 1", subject, n, len(b.storing))
		}
	}
	if b.m.Counters().Dropped[replication.DropMalformed] != 2 {
		t.Error("the two malformed messages were not counted")
	}
}

// A delta with many operations that visit all elements of a set is rejected, and the value is
// requested.
func TestManyFullScans(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 2)
	a, b := w.hosts[0], w.hosts[1]
	w.wait(a, a.put("s", all, "x", "y"))
	set := must(crdt.ORSet[string]{}.Add(b.actor, "1"))
	clears := func(n int) []byte {
		var d crdt.Delta
		for range n {
			one, _ := set.ResetDelta().Clear().Delta()
			d = must(d.Merge(one))
		}
		return must(d.AppendBinary(nil))
	}
	for _, c := range []struct {
		steps, gaps int
	}{{32, 0}, {33, 1}} {
		before := a.m.Counters()
		a.receive(b, replication.Delta{Items: []replication.Item{{Key: "s", From: 1, To: uint64(c.steps), Delta: clears(c.steps)}}})
		if n := a.m.Counters().DeltasGap - before.DeltasGap; n != uint64(c.gaps) {
			t.Errorf("%d operations: got %d gaps, want %d", c.steps, n, c.gaps)
		}
	}
	// A correct message is still accepted.
	r := w.wait(a, update(a, "t", all, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(a.actor, "x") }))
	for range 100 {
		r = w.wait(a, update(a, "t", all, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			for i := range 100 {
				var err error
				if s, err = s.Clear().Add(a.actor, fmt.Sprint(i)); err != nil {
					return s, err
				}
			}
			return s, nil
		}))
		break
	}
	if r.Outcome != replication.Done || b.show("t") != "99" {
		t.Errorf("got %+v, and b has %s, want Done and 99", r, b.show("t"))
	}
}

// The size of a message in parts is limited, and parts that do not belong together are dropped.
func TestPartsTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 2)
	a, b := w.hosts[0], w.hosts[1]
	piece := make([]byte, 1<<20-100)
	for i := range uint64(17) {
		a.receive(b, replication.Part{Nr: 1, Index: i, Count: 18, Data: piece})
	}
	if n := a.m.Counters().Dropped[replication.DropParts]; n != 1 {
		t.Errorf("%d messages in parts were dropped, want 1, because 17 parts of 1 MiB exceed the limit", n)
	}
}

// The bytes of all incomplete messages are limited. The oldest ones are dropped.
func TestIncompleteParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{MaxParts: 3 << 20}, 2)
	a, b := w.hosts[0], w.hosts[1]
	piece := make([]byte, 1<<20-100)
	for nr := range uint64(4) {
		a.receive(b, replication.Part{Nr: nr, Index: 0, Count: 100, Data: piece})
	}
	if n := a.m.Counters().Dropped[replication.DropParts]; n != 1 {
		t.Errorf("%d incomplete messages were dropped, want 1, because four of 1 MiB exceed the limit of 3 MiB", n)
	}
	for i := range uint64(4) { // the latest message may exceed the limit
		a.receive(b, replication.Part{Nr: 3, Index: i + 1, Count: 100, Data: piece})
	}
	if n := a.m.Counters().Dropped[replication.DropParts]; n != 3 {
		t.Errorf("%d incomplete messages were dropped, want 3", n)
	}
}

// TestPartsOfManySenders checks that the parts of a message do not drop those of other senders: the replies
// to a read of a large value arrive at the same time.
func TestPartsOfManySenders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 9)
	a := w.hosts[0]
	root := replication.AppendMessage(nil, replication.Root{})
	for i, b := range w.hosts[1:] {
		a.receive(b, replication.Part{Nr: uint64(i), Index: 0, Count: 2, Data: root[:1]})
	}
	for i, b := range w.hosts[1:] {
		a.receive(b, replication.Part{Nr: uint64(i), Index: 1, Count: 2, Data: root[1:]})
	}
	b := w.hosts[1]
	if n := a.m.Counters().Dropped[replication.DropParts]; n != 0 {
		t.Errorf("%d parts of eight senders were dropped, want 0", n)
	}
	for nr := range uint64(5) {
		a.receive(b, replication.Part{Nr: nr, Index: 0, Count: 2, Data: root[:1]})
	}
	if n := a.m.Counters().Dropped[replication.DropParts]; n != 1 {
		t.Errorf("%d of five incomplete messages of one sender were dropped, want 1", n)
	}
}

// A new node accepts a Chunk only from the node to which it has sent the Pull.
func TestChunkFromAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{}, 2)
	w.run(time.Second)
	n := w.start("n9", nil)
	x := w.start("x", nil)
	w.set(n.self, identity.Up)
	w.set(x.self, identity.WeaklyUp)
	w.keep = true
	n.sendMembers()
	var v crdt.GCounter
	value := must(v.Add(x.actor, 7).AppendBinary(nil))
	asked := 0
	for _, l := range w.sent {
		if l.from != n || l.send.Kind != replication.KindPull {
			continue
		}
		asked++
		p, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Pull)
		if !ok {
			t.Fatal("the message is not a Pull")
		}
		n.receive(x, replication.Chunk{Nr: p.Nr, Done: true, Entries: []replication.Entry{{Key: "k", Value: value}}})
	}
	if asked == 0 || n.show("k") != "-" || n.m.Counters().Dropped[replication.DropLate] == 0 {
		t.Errorf("sent %d Pulls, and the key is %s, want at least one Pull and no value", asked, n.show("k"))
	}
	w.sendMembers()
	w.run(5 * time.Second)
	if !n.m.Synced() {
		t.Error("the new node is not synced")
	}
}

// The number of writes of other nodes that wait for the disk is limited.
func TestDiskWaitIsLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Durable: []string{"*"}, MaxRequests: 5}, 2)
	a, b := w.hosts[0], w.hosts[1]
	b.held = true
	w.keep = true
	value := must(crdt.GCounter{}.Add(a.actor, 1).AppendBinary(nil))
	for i := range uint64(30) {
		b.receive(a, replication.Write{Nr: i + 1, Entry: replication.Entry{Key: fmt.Sprint(i), Value: value}})
	}
	if n := b.m.Counters().Storing; n != 10 {
		t.Errorf("%d writes wait for the disk, want 10", n)
	}
	faults := 0
	for _, l := range w.sent {
		if ack, ok := must(replication.DecodeMessage(l.send.Data)).(replication.Ack); ok && l.from == b && ack.Verdict == replication.StoreFault {
			faults++
		}
	}
	if r := b.replies[b.get("other", local)]; r.Outcome != replication.NotFound {
		t.Errorf("a request of the node itself: got %+v, want NotFound", r)
	}
	if faults != 20 {
		t.Errorf("%d writes were rejected, want 20", faults)
	}
}

// An update to a type that is nested too deeply is refused without a change.
func TestTypeNestedTooDeeply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{Durable: []string{"*"}}, 1)
	h := w.hosts[0]
	r := h.replies[update(h, "deep", local, func(m m8) (m8, error) { return m.Put(h.actor, "k", m7{}) })]
	if r.Outcome != replication.Failed || !errors.Is(r.Err, crdt.ErrLimit) || h.show("deep") != "-" || len(h.storing) != 0 {
		t.Errorf("got %+v, and the key is %s, want Failed with ErrLimit and no value", r, h.show("deep"))
	}
	if r := w.wait(h, update(h, "less", local, func(m m7) (m7, error) { return m.Put(h.actor, "k", m6{}) })); r.Outcome != replication.Done {
		t.Errorf("8 levels: %+v, want Done", r)
	}
	if later := h.restart(w.cfg); later.stopped || later.show("less") == "-" {
		t.Errorf("the machine did not start again: %v", later.notes)
	}
}

type (
	m1 = crdt.ORMap[string, crdt.GSet[string]]
	m2 = crdt.ORMap[string, m1]
	m3 = crdt.ORMap[string, m2]
	m4 = crdt.ORMap[string, m3]
	m5 = crdt.ORMap[string, m4]
	m6 = crdt.ORMap[string, m5]
	m7 = crdt.ORMap[string, m6]
	m8 = crdt.ORMap[string, m7]
)
