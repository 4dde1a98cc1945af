// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

// stored merges a changed value like a replicator.
func stored(before, after crdt.Value) crdt.Value {
	return must(before.Merge(after)).ResetDelta()
}

func BenchmarkGCounterUpdate(b *testing.B) {
	a := self(b, "orders-1:7400")
	var c crdt.GCounter
	for i := range 10 {
		c = c.Add(self(b, fmt.Sprintf("orders-1%0*d:7400", i+1, 0)), 5)
	}
	v := value(c.ResetDelta())
	b.ReportAllocs()
	for b.Loop() {
		c := must(crdt.As[crdt.GCounter](nil, v))
		after := value(c.Add(a, 1))
		_ = after.Delta()
		v = stored(v, after)
	}
}

func BenchmarkORSetAddOne(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			a := self(b, "orders-1:7400")
			v := value(largeSet(b, size))
			names := make([]string, 1<<14)
			for i := range names {
				names[i] = fmt.Sprintf("element %d", i%size*7919%size)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s := must(crdt.As[set](nil, v))
				after := value(must(s.Add(a, names[i&(1<<14-1)])))
				_ = after.Delta()
				v = stored(v, after)
			}
		})
	}
}

// BenchmarkORSetOne measures another addition of an element to a set of 100, on the node that adds
// it and on another node.
func BenchmarkORSetOne(b *testing.B) {
	a := self(b, "orders-1:7400")
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("element-7-%d", i)
	}
	before := value(add(set{}, a, names...).ResetDelta())
	update := func(i int) crdt.Value {
		return value(must(must(crdt.As[set](nil, before)).Add(a, names[i%len(names)])))
	}
	encoded := must(update(50).Delta().AppendBinary(nil))
	delta := must((*crdt.Types)(nil).DecodeDelta(encoded))
	b.Run("Update", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			after := update(i)
			_ = after.Delta()
			_ = must(before.Merge(after))
		}
	})
	b.Run("Encode", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for b.Loop() {
			dst = must(delta.AppendBinary(dst[:0]))
		}
	})
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = must((*crdt.Types)(nil).DecodeDelta(encoded))
		}
	})
	b.Run("Merge", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if before.NeedsFullState(delta) {
				b.Fatal("NeedsFullState is true for an addition")
			}
			_ = must(before.MergeDelta(delta))
		}
	})
}

func largeSet(tb testing.TB, size int) set {
	tb.Helper()
	by := []*crdt.Self{self(tb, "orders-1:7400"), self(tb, "orders-10:7400"), self(tb, "orders-100:7400")}
	var s set
	for i := range size {
		s = add(s, by[i%3], fmt.Sprintf("element %d", i)).ResetDelta()
	}
	return s
}

func BenchmarkRead(b *testing.B) {
	b.Run("GCounter", func(b *testing.B) {
		v := value(crdt.GCounter{}.Add(self(b, "a"), 1).Add(self(b, "bb"), 2).Add(self(b, "ccc"), 3).ResetDelta())
		b.ReportAllocs()
		for b.Loop() {
			if must(crdt.As[crdt.GCounter](nil, v)).Value() != 6 {
				b.Fatal("the sum is not 6")
			}
		}
	})
	b.Run("ORSet", func(b *testing.B) {
		v := value(largeSet(b, 1_000))
		b.ReportAllocs()
		for b.Loop() {
			if !must(crdt.As[set](nil, v)).Contains("element 77") {
				b.Fatal("the element is missing")
			}
		}
	})
}

func BenchmarkORSet(b *testing.B) {
	const size = 10_000
	s := value(largeSet(b, size))
	data := []byte(bytesOf(s))
	other := must((*crdt.Types)(nil).Decode(data))
	one := changes(add(must(crdt.As[set](nil, s)), self(b, "orders-1000:7400"), "one more"))
	b.Run("Merge", func(b *testing.B) {
		for b.Loop() {
			_ = must(s.Merge(other))
		}
	})
	b.Run("MergeDelta", func(b *testing.B) {
		for b.Loop() {
			_ = must(s.MergeDelta(one))
		}
	})
	b.Run("Encode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			data = must(s.AppendBinary(data[:0]))
		}
	})
	b.Run("Decode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			_ = must((*crdt.Types)(nil).Decode(data))
		}
	})
}

func BenchmarkPNCounterMapAdd(b *testing.B) {
	a := self(b, "orders-1:7400")
	var m crdt.PNCounterMap[string]
	for i := range 1_000 {
		m = must(m.Add(a, fmt.Sprint("key ", i), 1)).ResetDelta()
	}
	v := value(m)
	b.ReportAllocs()
	for b.Loop() {
		m := must(crdt.As[crdt.PNCounterMap[string]](nil, v))
		v = stored(v, value(must(m.Add(a, "key 500", 1))))
	}
}

// BenchmarkMemory reports the memory of a counter with one count, and of an element of a large set.
func BenchmarkMemory(b *testing.B) {
	const n = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	data := []byte(bytesOf(crdt.GCounter{}.Add(self(b, "orders-1:7400"), 5)))
	large := []byte(bytesOf(largeSet(b, n)))
	for b.Loop() {
		before := heap()
		values := make([]crdt.Value, n)
		for i := range values {
			values[i] = must((*crdt.Types)(nil).Decode(data))
		}
		b.ReportMetric(float64(heap()-before)/n, "B/counter")
		runtime.KeepAlive(values)
		before = heap()
		s := must((*crdt.Types)(nil).Decode(large))
		b.ReportMetric(float64(heap()-before)/n, "B/element")
		runtime.KeepAlive(s)
	}
}
