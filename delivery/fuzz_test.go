// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"bytes"
	"encoding/hex"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/delivery"
)

// FuzzState decodes arbitrary data as the state of an outbox and an inbox. The result is an error,
// or a usable state whose encoding is decoded and encoded again as the same data. The memory of the
// decoding is bounded.
func FuzzState(f *testing.F) {
	good := encode(f, sample())
	f.Add(good)
	for i := range good {
		f.Add(append(slices.Clone(good[:i]), 0xdd, 0xff, 0xff, 0xff, 0xff))
	}
	var big ends
	for range 300 {
		big.Out.Deliver(bob, Credit{Amount: 1})
	}
	for i := range uint64(300) {
		big.In.Record(from("s", 2*i+1, 1))
		big.In.Record(from(string(rune('A'+i)), 1, 1))
	}
	f.Add(encode(f, &big))
	f.Add(unhex("82a34f757482a16cce7fffffffa16f90a2496e81a17381a0c0")) // a last number without deliveries, a sender without a name
	c := endsCodec(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e ends
		var err error
		allocated(t, len(data), func() { err = c.Decode(data, &e) })
		if err != nil {
			return
		}
		stored, err := c.Encode(&e)
		if err != nil {
			t.Fatalf("encode the decoded state: %v", err)
		}
		var again ends
		if err := c.Decode(stored, &again); err != nil {
			t.Fatalf("decode the encoded state: %v", err)
		}
		if s, err := c.Encode(&again); err != nil || !bytes.Equal(s, stored) {
			t.Fatalf("%x is stored as %x: %v", stored, s, err)
		}
		e.Out.Recovered(time.Unix(0, 0))
		before := uint64(0)
		for d := range e.Out.All() {
			if d.Nr <= before {
				t.Fatalf("delivery %d follows %d, want ascending numbers", d.Nr, before)
			}
			before = d.Nr
			e.In.Record(delivery.Header{Sender: "s", Nr: d.Nr, Floor: 1})
		}
	})
}

func unhex(s string) []byte {
	data, _ := hex.DecodeString(s)
	return data
}

// allocated fails the test if f allocates more than 64 times its input and 1 MiB. Other goroutines
// allocate too, so a result above the limit is measured again.
func allocated(t *testing.T, input int, f func()) {
	t.Helper()
	limit := uint64(64*input + 1<<20)
	least := uint64(0)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = after.TotalAlloc - before.TotalAlloc; least <= limit {
			return
		}
	}
	t.Errorf("decoding %d bytes allocated %d bytes, want at most %d", input, least, limit)
}
