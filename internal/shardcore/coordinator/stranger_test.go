// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// A coordinator does not end because a member reports a term that nobody has claimed. It loads the
// state at most once in each RetryInterval.
func TestUnclaimedTermIsIgnored(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", registered("b")...)
	loads := 0
	for range 20 {
		for range 5 {
			before := d.load
			d.receive("b", coordinator.Message{Kind: coordinator.Fenced, Term: 1 << 63})
			if d.load != before {
				loads++
				d.loaded()
			}
		}
		d.pass(second)
	}
	if d.stopped != 0 || d.m.Phase() != coordinator.Active || loads < 5 || loads > 11 {
		t.Errorf("stopped = %v in phase %v after %d loads, want an active coordinator and a load each 2 s", d.stopped, d.m.Phase(), loads)
	}
	d.get("b", 1)
	d.want("GetHomes", "b host[1]")
}

// A coordinator ignores all messages of nodes that are not members.
func TestStrangersAreIgnored(t *testing.T) {
	t.Parallel()
	d := active(t, coordinator.Config{}, "a b", registered("b")...)
	d.get("b", 1)
	d.sent()
	load := d.load
	for kind := coordinator.Register; kind <= coordinator.Refused; kind++ {
		for _, term := range []uint64{0, d.m.Term(), 1 << 63} {
			d.receive("x", coordinator.Message{Kind: kind, Term: term, Shards: []shard{1}})
		}
	}
	d.want("messages of a stranger", "")
	if d.load != load || d.stopped != 0 {
		t.Errorf("load %d, stopped = %v, want no effect of a stranger", d.load, d.stopped)
	}
}
