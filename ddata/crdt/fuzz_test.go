// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/refold-io/refold/ddata/crdt"
)

// limited fails if f allocates more than a multiple of its input. The least of a
// few tries counts: other goroutines allocate too.
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

// ours reports whether an error is one that a decoder may return.
func ours(err error) bool {
	return errors.Is(err, crdt.ErrMalformed) || errors.Is(err, crdt.ErrLimit) || errors.Is(err, crdt.ErrUndefined)
}

func FuzzDecode(f *testing.F) {
	types := knows(f)
	all := samples(f)
	for _, v := range all {
		f.Add([]byte(bytesOf(v)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var v crdt.Value
		var err error
		limited(t, len(data), func() { v, err = types.Decode(data) })
		if !bytes.Equal(data, before) {
			t.Error("the data was written to")
		}
		if err != nil {
			if !ours(err) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		if got := bytesOf(v); got != string(data) {
			t.Fatalf("%x becomes %x", data, got)
		}
		// Whatever is accepted can be worked with.
		if m, err := v.Merge(v); err != nil || m.Type() != v.Type() {
			t.Errorf("merged with itself: %v", err)
		}
		for _, n := range v.ModifiedBy() {
			if _, err := v.Cleanup(n); err != nil {
				t.Errorf("cleaned up: %v", err)
			}
			if p, err := v.Prune(self(t, "pruner"), n); err != nil || p.NeedsPruning(n) {
				t.Errorf("pruned: %v", err)
			}
		}
		for _, other := range all {
			if m, err := v.Merge(other); err == nil {
				_ = must(types.Decode([]byte(bytesOf(m))))
			} else if !errors.Is(err, crdt.ErrType) {
				t.Errorf("merged with a sample: %v", err)
			}
		}
	})
}

func FuzzDecodeDelta(f *testing.F) {
	types := knows(f)
	all := samples(f)
	for _, v := range all {
		if d := v.Delta(); !d.IsZero() {
			f.Add([]byte(bytesOf(d)))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d crdt.Delta
		var err error
		limited(t, len(data), func() { d, err = types.DecodeDelta(data) })
		if err != nil {
			if !ours(err) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		if got := bytesOf(d); got != string(data) {
			t.Fatalf("%x becomes %x", data, got)
		}
		if _, err = d.Merge(d); err != nil {
			t.Errorf("merged with itself: %v", err)
		}
		v, err := d.Zero().MergeDelta(d)
		if err != nil {
			t.Fatalf("applied to the empty value: %v", err)
		}
		_ = must(types.Decode([]byte(bytesOf(v))))
		for _, other := range all {
			if m, err := other.MergeDelta(d); err == nil {
				_ = must(types.Decode([]byte(bytesOf(m))))
			} else if !errors.Is(err, crdt.ErrType) {
				t.Errorf("applied to a sample: %v", err)
			}
		}
	})
}
