// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/groups"
)

// FuzzGroupMessage checks that each message that can be decoded has one encoding, and that replies
// of other nodes are decoded without a failure.
func FuzzGroupMessage(f *testing.F) {
	f.Add((&groupMessage{1, "role", "desk", 7, []byte("x")}).encode())
	f.Add((&groupMessage{0, "", "d", groups.MaxInstances - 1, nil}).encode())
	f.Add([]byte{0, 5, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeGroupMessage(b); err == nil && b[0] == wireVersion && !bytes.Equal(m.encode(), b) {
			t.Errorf("%x is decoded as %+v, which is encoded as %x", b, m, m.encode())
		}
		if payload, pending, err := groupResult(identity.Node{}, b); err == nil && len(payload)+pending < 0 {
			t.Errorf("a reply with %d pending messages", pending)
		}
	})
}

// TestRendezvous checks that keys are spread evenly, and that few keys change their instance if the
// number of instances changes.
func TestRendezvous(t *testing.T) {
	t.Parallel()
	const keys = 10_000
	for _, count := range []int{1, 2, 3, 10} {
		at, moved := make([]int, count), 0
		for i := range keys {
			key := uint64(hash(fmt.Sprint("key-", i)))
			nr := rendezvous(key, count)
			at[nr]++
			if next := rendezvous(key, count+1); next != nr && next != count {
				t.Fatalf("with another instance, key %d moves from %d to %d, want the new instance", i, nr, next)
			} else if next != nr {
				moved++
			}
		}
		for nr, n := range at {
			if mean := keys / count; n < mean*8/10 || n > mean*12/10 {
				t.Errorf("instance %d of %d has %d keys, the mean is %d", nr, count, n, mean)
			}
		}
		if want := keys / (count + 1); moved > want*12/10 {
			t.Errorf("%d keys move from %d to %d instances, want about %d", moved, count, count+1, want)
		}
	}
}
