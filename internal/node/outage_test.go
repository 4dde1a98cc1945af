// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

// TestABrokerThatComesBackToFewer: the broker is away, and one node crashes meanwhile. The others lost their links
// together, so they are the larger side whatever the silent one has decided; but it may have had the lease.
func TestABrokerThatComesBackToFewer(t *testing.T) {
	t.Parallel()
	for _, strategy := range []splitbrain.Strategy{splitbrain.KeepMajority, splitbrain.LeaseMajority} {
		w := newWorld(t)
		nodes := w.cluster(3, func(c *node.Config) {
			c.Downing = splitbrain.Settings{Strategy: strategy, StableAfter: 5 * time.Second}
		})
		for _, b := range nodes {
			b.host(singleton.Config{})
		}
		w.until("it runs", func() bool { return nodes[0].runs("singleton") })
		for _, b := range nodes {
			w.isolate(b, true)
		}
		w.run(30 * time.Second)
		nodes[0].dead = true
		w.run(30 * time.Second)
		clear(w.cut)
		if strategy == splitbrain.KeepMajority {
			w.until("it runs elsewhere", func() bool { return nodes[1].runs("singleton") })
			if nodes[1].up() != 2 || nodes[2].up() != 2 {
				t.Errorf("%d and %d are up", nodes[1].up(), nodes[2].up())
			}
			continue
		}
		w.until("both have ended", func() bool { return nodes[1].Stopped() && nodes[2].Stopped() })
		ended := membership.Life{Kind: membership.Stopped, Reason: membership.WasDowned}
		for _, b := range nodes[1:] {
			if len(b.started) > 0 || b.Counters().Downing != nodes[0].Counters().Downing || !slices.Contains(b.life, ended) {
				t.Errorf("%v has started %v, decided %v and lived %v", b.self, b.started, b.Counters().Downing, b.life)
			}
		}
	}
}
