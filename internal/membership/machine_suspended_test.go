// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
)

// TestNobodyJoinsTheSuspended: a node that was cut off and may have been given up lets nobody in, and
// does not take it for evidence that another is dead if that one comes back: with that one
// given up it would go on, alone, while the cluster that it was part of goes on elsewhere.
func TestNobodyJoinsTheSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	hosts := w.join(names(2)...)
	w.up(time.Minute, hosts...)
	cut := hosts[1]
	cut.offline = true
	w.run(40 * time.Second)
	hosts[0].kill()
	cut.offline = false
	w.run(5 * time.Second)
	if !cut.m.Suspended() {
		t.Fatal("it was away for long enough")
	}
	again := w.start("node-000")
	again.do(membership.JoinSeeds{Seeds: names(2)})
	other := w.start("node-002")
	other.do(membership.JoinNode{Name: "node-001"})
	w.run(time.Minute)
	switch {
	case !cut.m.Suspended():
		t.Error("it goes on, and nobody has vouched for it")
	case cut.m.Gossip().Member(hosts[0].node).Status != up:
		t.Error("it has given up another, and does not know whether it is a member itself")
	case cut.m.Gossip().Member(again.node) != nil || cut.m.Gossip().Member(other.node) != nil:
		t.Error("it has let another one in")
	}
}

// TestTheSuspendedBelieveInNoRestart is the same for a name that another one wanted just before the node was
// cut off.
func TestTheSuspendedBelieveInNoRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	hosts := w.join(names(2)...)
	w.up(time.Minute, hosts...)
	cut := hosts[1]
	hosts[0].kill()
	again := w.start("node-000")
	again.do(membership.JoinSeeds{Seeds: names(2)})
	w.run(time.Second)
	cut.offline = true
	again.kill()
	w.run(40 * time.Second)
	cut.offline = false
	w.run(20 * time.Second)
	if m := cut.m.Gossip().Member(hosts[0].node); m == nil || m.Status != up {
		t.Errorf("it has given up another, and does not know whether it is a member itself: %v", m)
	}
}
