// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// The small side of a clean cut through a large cluster, which has the oldest member, finds out about all the others soon
// enough to come to a decision, and survives.
func TestTheSmallSideOfManySurvives(t *testing.T) {
	t.Parallel()
	for _, side := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(side), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.resolving(splitbrain.Settings{Strategy: splitbrain.KeepOldest, KeepLoneOldest: true, StableAfter: 13 * time.Second})
			hosts := w.join(names(60)...)
			w.up(2*time.Minute, hosts...)
			w.run(20 * time.Second)
			small := map[string]bool{}
			for _, h := range hosts[:side] {
				small[h.node.Name] = true
			}
			w.cut = func(from, to string) bool { return small[from] != small[to] }
			w.run(53 * time.Second)
			for _, h := range hosts {
				if stays := small[h.node.Name]; h.dead == stays || !stays && !h.stopped(membership.WasDowned) {
					t.Errorf("%v has ended: %t", h.node, h.dead)
				}
			}
		})
	}
}
