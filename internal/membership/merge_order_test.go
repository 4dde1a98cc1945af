// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"

	"github.com/refold-io/refold/internal/membership"
)

// TestMergeTakesNothingBack: whatever a member has become, a merge with a state in which it had not
// yet keeps it. Ready for shutdown is no exception: a member that leaves then, or is marked as down, would
// stay for ever.
func TestMergeTakesNothingBack(t *testing.T) {
	t.Parallel()
	for before := joining; before <= membership.ReadyForShutdown; before++ {
		for after := joining; after <= membership.ReadyForShutdown; after++ {
			if !before.CanBecome(after) || after == removed {
				continue
			}
			base := first(membership.Gossip{}.Apply(node("a"), membership.Change{Put: []*membership.Member{member("a", up), member("b", before), member("c", up)}}))
			here := first(base.Apply(node("a"), membership.Change{Put: []*membership.Member{member("b", after)}}))
			there := first(base.Apply(node("c"), membership.Change{Observed: []membership.Observation{{Subject: node("a"), Reach: membership.Unreachable}}}))
			for _, merge := range [][2]membership.Gossip{{here, there}, {there, here}} {
				merged, _ := merge[0].Merge(merge[1])
				if got := merged.Member(node("b")).Status; got != after {
					t.Errorf("%v became %v, and a merge makes it %v", before, after, got)
				}
			}
		}
	}
}

func first(g membership.Gossip, _ error) membership.Gossip { return g }
