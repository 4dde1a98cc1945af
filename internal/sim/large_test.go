// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/sim"
)

// TestLarge is make sim-large with few nodes.
func TestLarge(t *testing.T) {
	t.Parallel()
	l := sim.Large{Seed: 1, Nodes: 40, JoinWithin: 5 * time.Second, Crash: 2, Loss: 0.001, Quiet: 30 * time.Second}
	r := l.Run()
	switch {
	case r.Err != nil:
		t.Fatal(r.Err)
	case r.AllUp > 45*time.Second || r.Decided > 38*time.Second:
		t.Errorf("all nodes are Up after %v, want 45s; the crash is decided after %v, want 38s", r.AllUp, r.Decided)
	case r.Messages[link.Control] < 18 || r.Messages[link.Control] > 24: // 9 heartbeats, 9 answers, an echo, some gossip
		t.Errorf("each node sends %v messages per second by lane, want 18 to 24 on the control lane", r.Messages)
	}
	if again := l.Run(); again != r {
		t.Errorf("two runs with the same seed: got %+v and %+v, want equal results", r, again)
	}
}
