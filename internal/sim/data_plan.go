// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/refold-io/refold/internal/replication"
)

// DataPlan is what is chosen about replicated data before a simulation begins.
type DataPlan struct {
	// Config is that of all replicators, without what differs from node to node.
	Config replication.Config
	// Pace is about how often a client does something.
	Pace time.Duration
	// Durable says that some keys are kept on disk.
	Durable bool
	// Pruned says that nodes that have left are pruned soon; else it does not come to that, and
	// all that is on a disk has to be there in the end.
	Pruned bool
	// DurablePruned says that this goes for durable keys too.
	DurablePruned bool
	// Forgotten says that markers of pruning are soon forgotten, and nobody hears of clocks
	// that jump.
	Forgotten bool
	// Large says that there are values larger than a message.
	Large bool
}

// NewDataPlan chooses what a seed stands for.
func NewDataPlan(seed uint64, plan Plan) DataPlan {
	r := rand.New(rand.NewPCG(seed, 0xda7a91a7)) //nolint:gosec // it has to be repeatable
	p := DataPlan{Pace: 600 * time.Millisecond, Durable: r.IntN(4) > 0, Pruned: r.IntN(5) > 1}
	c := &p.Config
	// A clock on the wall may jump by half a day.
	c.PruneInterval, c.MarkerTTL, c.DurableMarkerTTL = -1, 1_000*time.Hour, 1_000*time.Hour
	if p.Pruned {
		c.PruneInterval, c.PruneAfter = 4*time.Second, 9*time.Second
		if p.DurablePruned = r.IntN(3) == 0; p.DurablePruned {
			c.DurablePruneAfter = c.PruneAfter
		}
		if p.Forgotten = r.IntN(8) == 0; p.Forgotten {
			c.MarkerTTL = forgottenAfter
		}
	}
	if p.Durable {
		c.Durable = []string{"durable/*"}
	}
	if r.IntN(3) == 0 {
		c.Expire = map[string]time.Duration{"lease/*": 15 * time.Second}
	}
	switch r.IntN(10) {
	case 0:
		c.DisableDeltas = true
	case 1, 2:
		c.MaxDeltaOps = 2 + r.IntN(8)
	case 3:
		c.MaxLog = 2 + r.IntN(6)
	case 4:
		c.GossipInterval, c.NotifyInterval, c.DeltaInterval = time.Second, 200*time.Millisecond, 100*time.Millisecond
	}
	if len(plan.Names) > 10 && r.IntN(2) == 0 { // where not all are told at once, some changes have to be dropped
		c.MaxLog = 2 + r.IntN(6)
	}
	if r.IntN(40) == 0 {
		p.Large = true
		c.MaxEntry, c.MaxMessage = 60<<10, 64<<10
	}
	return p
}

// prunes reports whether what nodes have left is moved in a key.
func (p DataPlan) prunes(k *datum) bool { return p.Pruned && (!k.durable || p.DurablePruned) }

// forgottenAfter is longer than any living member is without news of the others.
const forgottenAfter = 200 * time.Second

// String says what is special about the plan.
func (p DataPlan) String() string {
	return fmt.Sprintf("durable %t, pruned %t, durable ones %t, forgotten %t, large %t, deltas %t", p.Durable, p.Pruned, p.DurablePruned, p.Forgotten, p.Large, !p.Config.DisableDeltas)
}
