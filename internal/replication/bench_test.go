// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// BenchmarkUpdate measures local updates with two peers that receive the changes.
func BenchmarkUpdate(b *testing.B) {
	bench := func(b *testing.B, key string, f func(h *host, i int) func(crdt.Value) (crdt.Value, error), fill func(h *host)) {
		b.Helper()
		w := newWorld(b, 1, replication.Config{GossipInterval: time.Hour}, 3)
		h := w.hosts[0]
		fill(h)
		w.run(time.Second)
		now := w.now
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			now += 10 * time.Microsecond
			e := h.m.Step(now, batch(replication.Update{Request: replication.Request{ID: uint64(i), Key: key}, Modify: f(h, i)}))
			if len(e.Replies) != 1 || e.Replies[0].Outcome != replication.Done {
				b.Fatal(e.Replies)
			}
			if h.m.Next() <= now {
				h.m.Tick(now)
			}
		}
	}
	b.Run("GCounter", func(b *testing.B) {
		bench(b, "visits", func(h *host, _ int) func(crdt.Value) (crdt.Value, error) {
			return modify(func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(h.actor, 1), nil })
		}, func(h *host) { h.add("visits", local, 1) })
	})
	b.Run("ORSet1000", func(b *testing.B) {
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprintf("element %d", i)
		}
		bench(b, "cart", func(h *host, i int) func(crdt.Value) (crdt.Value, error) {
			return modify(func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(h.actor, names[i%1000]) })
		}, func(h *host) { h.put("cart", local, names...) })
	})
}

func BenchmarkGet(b *testing.B) {
	h := newWorld(b, 1, replication.Config{}, 3).hosts[0]
	h.add("visits", local, 1)
	b.Run("Step", func(b *testing.B) {
		b.ReportAllocs()
		for i := uint64(0); b.Loop(); i++ {
			e := h.m.Step(h.w.now, batch(replication.Get{Request: replication.Request{ID: i, Key: "visits"}}))
			if len(e.Replies) != 1 {
				b.Fatal(e.Replies)
			}
		}
	})
	b.Run("Value", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v, _, found := h.m.Value("visits"); !found || v.IsZero() {
				b.Fatal("Value did not find the key")
			}
		}
	})
}

// BenchmarkWriteMajority measures the work of all three nodes for one write.
func BenchmarkWriteMajority(b *testing.B) {
	w := newWorld(b, 1, replication.Config{}, 3)
	h := w.hosts[0]
	h.add("visits", all, 1)
	w.run(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		id := h.add("visits", majority, 1)
		w.wait(h, id)
		delete(h.replies, id)
	}
}

// filled returns two nodes with n counters.
func filled(b *testing.B, keys int) *world {
	b.Helper()
	w := newWorld(b, 1, replication.Config{MaxLog: 1_000_000, DisableDeltas: true}, 2)
	for i := range keys {
		w.hosts[0].add(fmt.Sprintf("counter-%d", i), local, 1)
	}
	w.run(5 * time.Second)
	w.converge(time.Minute)
	return w
}

// BenchmarkIdle measures the traffic per second of two nodes with 100,000 equal keys.
func BenchmarkIdle(b *testing.B) {
	w := filled(b, 100_000)
	b.ReportAllocs()
	begun := w.now
	before := w.bytes()
	for b.Loop() {
		w.run(10 * time.Second)
	}
	b.ReportMetric(float64(w.bytes()-before)/2/(w.now-begun).Seconds(), "wire-B/s/node")
}

func (w *world) bytes() (n uint64) {
	for _, h := range w.hosts {
		for _, sent := range h.m.Counters().SentBytes {
			n += sent
		}
	}
	return n
}

// BenchmarkJoin measures a new node that fetches 100,000 sets of ten elements.
func BenchmarkJoin(b *testing.B) {
	const keys = 100_000
	w := newWorld(b, 1, replication.Config{MaxLog: 1_000_000}, 3)
	for i := range keys {
		key := fmt.Sprintf("set-%d", i)
		w.hosts[i%3].put(key, local, "element-0", "element-1", "element-2", "element-3", "element-4", "element-5", "element-6", "element-7", "element-8", "element-9")
	}
	w.run(5 * time.Second)
	w.converge(time.Minute)
	for _, h := range w.hosts {
		clear(h.values)
	}
	for b.Loop() {
		n := w.start(fmt.Sprintf("n%d", len(w.hosts)+1), nil)
		w.set(n.self, identity.Up)
		w.sendMembers()
		for !n.m.Synced() {
			w.next(w.now + time.Second)
		}
		if n.m.Root() != w.hosts[0].m.Root() {
			b.Fatal("the root of the new node differs")
		}
		n.ended = true
		w.set(n.self, identity.Removed)
		w.sendMembers()
		w.hosts = w.hosts[:3]
	}
	b.ReportMetric(float64(keys)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkMemory measures the memory of an entry without its value.
func BenchmarkMemory(b *testing.B) {
	const keys = 100_000
	var least float64
	for b.Loop() {
		actor := must(crdt.NewSelf(node("a", 1)))
		values := make([]crdt.Value, keys)
		for i := range values {
			values[i] = must((*crdt.Types)(nil).Value(crdt.GCounter{}.Add(actor, 1).ResetDelta()))
		}
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprintf("counter-%d", i)
		}
		w := newWorld(b, 1, replication.Config{}, 1)
		m := w.hosts[0].m
		before := heap()
		for i, v := range values {
			m.Step(0, batch(replication.Update{Request: replication.Request{ID: 1, Key: names[i]}, Modify: func(crdt.Value) (crdt.Value, error) { return v, nil }}))
		}
		m.Root()
		least = float64(heap()-before) / keys
		runtime.KeepAlive(values)
		runtime.KeepAlive(m)
	}
	b.ReportMetric(least, "B/entry")
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
