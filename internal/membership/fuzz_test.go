// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/refold-io/refold/internal/membership"
)

// limited fails if f allocates more than a multiple of its input. It takes the minimum of several
// runs, because other goroutines allocate too.
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
	t.Errorf("an input of %d bytes allocated %d bytes, want at most %d", input, least, limit)
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages(f) {
		f.Add(membership.AppendMessage(nil, m))
	}
	known := cluster(f, member("a", up), member("b", up), member("node-1.example:7400", up))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m membership.Message
		var g membership.Gossip
		var err error
		limited(t, len(data), func() {
			if m, err = membership.DecodeMessage(data); err == nil {
				switch s := m.(type) {
				case membership.State:
					g, err = s.Gossip(known)
				case membership.Welcome:
					g, err = s.Gossip(known)
				}
			}
		})
		if !bytes.Equal(data, before) {
			t.Error("DecodeMessage modified its input")
		}
		if err != nil {
			if !errors.Is(err, membership.ErrMalformed) {
				t.Errorf("DecodeMessage: %v, want ErrMalformed", err)
			}
			return
		}
		once := membership.AppendMessage(nil, m)
		again, err := membership.DecodeMessage(once)
		if err != nil || !bytes.Equal(membership.AppendMessage(nil, again), once) {
			t.Fatalf("%x was decoded and encoded as %x, %v", once, membership.AppendMessage(nil, again), err)
		}
		check(t, g)
	})
}

func FuzzContent(f *testing.F) {
	for _, name := range []string{"state", "welcome"} {
		switch m := messages(f)[name].(type) {
		case membership.State:
			f.Add(m.Content)
		case membership.Welcome:
			f.Add(m.Content)
		}
	}
	known := cluster(f, member("a", up), member("b", up))
	f.Fuzz(func(t *testing.T, data []byte) {
		var g membership.Gossip
		var err error
		limited(t, len(data), func() { g, err = membership.DecodeContent(data, known) })
		if err != nil {
			return
		}
		check(t, g)
		once := g.AppendContent(nil)
		again, err := membership.DecodeContent(once, membership.Gossip{})
		if err != nil || !bytes.Equal(again.AppendContent(nil), once) {
			t.Fatalf("%x was decoded and encoded as %x, %v", once, again.AppendContent(nil), err)
		}
		merged, _ := again.Merge(known)
		check(t, merged)
	})
}
