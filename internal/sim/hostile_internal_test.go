// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/splitbrain"
)

// expected are the rows of the coverage that a fault must fill.
type expected map[string][]string

func (e expected) missing(c Coverage) (rows []string) {
	for table, all := range e {
		for _, row := range all {
			if c[table][row] == 0 {
				rows = append(rows, table+": "+row)
			}
		}
	}
	slices.Sort(rows)
	return rows
}

// TestForgedMessages injects each fault of the fault mix that violates a protocol until the
// simulation has covered its events. make sim requires the same events.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		inject func(*cluster) bool
		want   expected
	}{
		"hostile": {hostile, expected{
			"hostile":           {"stranger", "removed node", "member"},
			"dropped":           {membership.DropMalformed.String(), membership.DropAhead.String(), membership.DropUnconfirmed.String(), membership.DropStranger.String(), membership.DropRemoved.String()},
			"data dropped":      {replication.DropMalformed.String(), replication.DropStranger.String(), replication.DropLate.String()},
			"link dropped":      forgedFrameDrops(),
			"singleton message": {"malformed", "refused"},
			"sharding":          {"malformed"},
		}},
		"early leave":         {earlyLeave, expected{"node": {"left early"}, "stopped": {membership.Left.String()}}},
		"admission and crash": {admissionAndCrash, expected{"node": {"crashed after an admission"}}},
		"lease owner":         {leaseOwner, expected{"downing": {splitbrain.LeftToOwner.String()}}},
		"small buffers":       {crash, expected{"refused": {shardcore.BufferFull.String()}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missing := test.want.missing(Coverage{})
			covered := Coverage{}
			for seed := uint64(1); seed <= 12 && len(missing) > 0; seed++ {
				plan := NewPlan(seed, 6)
				plan.Config.Downing = splitbrain.Settings{Strategy: downing.LeaseMajority}
				c := newCluster(seed, plan)
				c.shard.plan.Config.Region.BufferSize, c.shard.plan.Config.Shard.BufferSize, c.shard.plan.Calm = 20, 20, false
				c.begin()
				c.shard.begin()
				c.converge("comes-up", time.Minute, c.unsettled)
				c.leaving[c.hosts[5].p.Node()] = true // a removed node
				c.hosts[5].shards.restart()
				for range 20 {
					if c.run(5 * time.Second); len(c.members()) > 2 && !c.broken() {
						test.inject(c)
					}
				}
				if c.broken() {
					t.Fatalf("seed %d: %v", seed, c.violation)
				}
				for _, h := range c.hosts {
					c.count(h)
					c.data.count(h.data)
				}
				covered.Add(c.coverage)
				missing = test.want.missing(covered)
			}
			if len(missing) > 0 {
				t.Errorf("events that never occurred: %q", missing)
			}
		})
	}
}
