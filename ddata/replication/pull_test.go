// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/membership"
	"github.com/refold-io/refold/ddata/replication"
)

// A node that still gets the data from others compares nothing, whoever begins: it would get most of it twice. It does
// when it has all, and what has changed meanwhile is there then.
func TestNoComparisonWhileItPulls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, replication.Config{GossipInterval: time.Second}, 3)
	a := w.hosts[0]
	for i := range 300 {
		a.put(fmt.Sprint("set-", i), local, "tea")
	}
	w.run(10 * time.Second)
	n := w.start("n4", nil)
	w.set(n.self, membership.Up)
	w.keep = true
	w.cut = func(from, to *host) bool { return to == n } // nothing comes
	for _, h := range w.hosts {                          // but all can reach each other
		h.step(replication.Members{All: w.members})
	}
	w.run(5 * time.Second)
	root := replication.AppendMessage(nil, replication.Root{Digest: a.m.Root()})
	n.step(replication.Received{From: a.self, Data: root})
	a.put("set-0", local, "milk")
	w.run(time.Millisecond)
	for _, l := range w.sent {
		if l.from == n && l.send.Kind != replication.KindPull {
			t.Errorf("%v is sent while it pulls", l.send.Kind)
		}
	}
	w.cut, w.sent = nil, nil
	w.run(5 * time.Second)
	if !n.m.Synced() || n.m.Root() != a.m.Root() {
		t.Errorf("synced: %v, it holds %d keys", n.m.Synced(), len(n.m.Keys()))
	}
	if n.m.Counters().Compared == 0 {
		t.Error("it has never compared")
	}
}
