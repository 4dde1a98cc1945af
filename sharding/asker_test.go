// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
)

// Replies go to members only, so that commands with invented askers create no links.
func TestInventedAskers(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		id := w.homeOf(all[0], all[1])
		before := all[1].Transport().Stats().Peers
		for i := range uint64(100) {
			asker := identity.Node{Name: fmt.Sprint("junk", i), UID: i + 1}
			w.attack(all[0].Transport(), all[1], kindRegion, w.forward(all[1], id, read{}, asker))
			w.attack(all[0].Transport(), all[1], kindRegion, w.forward(all[1], "\xff", read{}, asker))
		}
		w.sleep(time.Second)
		if now := all[1].Transport().Stats().Peers; now != before {
			w.Errorf("b has links to %d nodes, %d before", now, before)
		}
		w.spread(all, 5, 0)
	})
}
