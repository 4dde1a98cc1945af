// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/plugins/leveldb"
)

func benchDurable(b *testing.B) durable.Store {
	b.Helper()
	s, err := leveldb.NewDurable(b.TempDir(), leveldb.DurableConfig{}).Open(b.Context(), durableID())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func benchRecords(n, from int) []durable.Record {
	records := make([]durable.Record, n)
	for i := range records {
		records[i] = durable.Record{Key: fmt.Sprintf("key-%06d", (from+i)%100_000), Data: make([]byte, 100)}
	}
	return records
}

// BenchmarkDurableWrite writes some records of 100 bytes with one call.
func BenchmarkDurableWrite(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchDurable(b)
			records := benchRecords(n, 0)
			b.ResetTimer()
			for b.Loop() {
				if err := s.Write(b.Context(), records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDurableLoad loads 100,000 records of 100 bytes.
func BenchmarkDurableLoad(b *testing.B) {
	s := benchDurable(b)
	for from := 0; from < 100_000; from += 10_000 {
		if err := s.Write(b.Context(), benchRecords(10_000, from)); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		n := 0
		for _, err := range s.Load(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 100_000 {
			b.Fatalf("loaded %d records, want 100,000", n)
		}
	}
}
