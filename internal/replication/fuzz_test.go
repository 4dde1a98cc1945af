// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/replication"
)

// limited fails if f allocates more than a multiple of its input. The least of
// a few tries counts: other goroutines allocate too.
func limited(t *testing.T, input int, f func()) {
	t.Helper()
	limit := uint64(64*input + 1<<20)
	var least uint64
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = after.TotalAlloc - before.TotalAlloc; least <= limit {
			return
		}
	}
	t.Errorf("%d bytes of input: %d bytes allocated, more than %d", input, least, limit)
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(replication.AppendMessage(nil, m))
	}
	for _, kind := range []replication.Kind{replication.KindDelta, replication.KindWant, replication.KindUses, replication.KindGossip} {
		f.Add([]byte{0x10, byte(kind), 0, 0, 0x80, 0x80, 0x80, 8}) // counts with nothing behind them
		f.Add([]byte{0x10, byte(kind), 0, 0x80, 0x80, 0x80, 8})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m replication.Message
		var err error
		limited(t, len(data), func() { m, err = replication.DecodeMessage(data) })
		if !bytes.Equal(data, before) {
			t.Error("the message was written to")
		}
		if err != nil {
			if !errors.Is(err, replication.ErrMalformed) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		once := replication.AppendMessage(nil, m)
		again, err := replication.DecodeMessage(once)
		if err != nil || !bytes.Equal(replication.AppendMessage(nil, again), once) {
			t.Fatalf("%x becomes %x, %v", once, replication.AppendMessage(nil, again), err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	for _, r := range records() {
		f.Add(replication.AppendRecord(nil, r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r replication.Record
		var err error
		limited(t, len(data), func() { r, err = replication.DecodeRecord(data) })
		if err != nil {
			if !errors.Is(err, replication.ErrMalformed) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		once := replication.AppendRecord(nil, r)
		if again, err := replication.DecodeRecord(once); err != nil || !bytes.Equal(replication.AppendRecord(nil, again), once) {
			t.Fatalf("%x, %v", once, err)
		}
	})
}

// What a member sends never makes a machine panic, and never makes it forget.
func FuzzReceive(f *testing.F) {
	for _, m := range real(f) {
		f.Add(m)
	}
	for _, m := range messages() {
		f.Add(replication.AppendMessage(nil, m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		self, other := node("a", 1), node("b", 2)
		actor := must(crdt.NewSelf(self))
		m := must(replication.New(replication.Config{Self: actor, Started: started, Rand: rand.New(rand.NewPCG(1, 2))}))
		m.Step(0, replication.Members{All: []membership.Member{
			{Node: self, Status: membership.Up, UpNumber: 2}, {Node: other, Status: membership.Up, UpNumber: 1},
		}})
		m.Step(0, replication.Update{
			Request: replication.Request{ID: 1, Key: "visits", Level: majority},
			Modify:  modify(func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(actor, 7), nil }),
		})
		m.Step(0, replication.Get{Request: replication.Request{ID: 2, Key: "cart", Level: majority}})
		for i := range 3 {
			m.Step(time.Duration(i)*time.Second, replication.Received{From: other, Data: data})
		}
		v, deleted, found := m.Value("visits")
		if !found || !deleted && must(crdt.As[crdt.GCounter](nil, v)).Value() < 7 {
			t.Error("what was counted is lost")
		}
		for range 20 {
			m.Tick(m.Next())
		}
		if n := m.Counters().Open; n != 0 {
			t.Errorf("%d rounds are still open", n)
		}
	})
}

// real returns messages that machines have really sent.
func real(f *testing.F) [][]byte {
	f.Helper()
	w := newWorld(f, 3, replication.Config{}, 3)
	w.keep, w.lossy = true, true
	a, b := w.hosts[0], w.hosts[1]
	for range 10 {
		a.add("visits", majority, 1)
		b.put("cart", majority, "tea", "milk")
		a.drop("cart", local, "tea")
		b.get("visits", majority)
		w.run(time.Second)
	}
	var all [][]byte
	for i, l := range w.sent {
		if i%10 == 0 {
			all = append(all, l.send.Data)
		}
	}
	return all
}
