// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/refold-io/refold/internal/replication"

// count adds what a replicator has counted, once, in the end.
func (d *data) count(r *replicator) {
	d.mustHappen()
	n, c := r.m.Protocol().Counters(), d.c.coverage
	for k := replication.KindWrite; k < replication.Kinds; k++ {
		c.hit("data message", k.String(), n.Received[k])
	}
	for k := range replication.Drops {
		c.hit("data dropped", k.String(), n.Dropped[k])
	}
	for row, n := range map[string]uint64{
		"compared": n.Compared, "equal": n.Equal, "delta applied": n.DeltasApplied, "delta known": n.DeltasKnown, "delta behind a gap": n.DeltasGap,
		"delta as a whole value": n.DeltasAsStates, "delta dropped": n.DeltasDropped, "merged": n.Merged, "known": n.Known, "second wave": n.SecondWaves,
		"read repaired here": n.Repaired, "pruning begun": n.Initiated, "pruned": n.Pruned, "marker forgotten": n.Cleared, "expired": n.Expired,
	} {
		c.hit("data", row, n)
	}
}

// mustHappen are the rows of what is counted when it happens.
func (d *data) mustHappen() {
	for table, rows := range map[string][]string{
		"read":    {"done", "not found", "deleted", "timed out", "too few replicas", "stopped"},
		"update":  {"done", "deleted", "timed out", "too few replicas", "store failed", "stopped"},
		"delete":  {"done", "deleted", "timed out"},
		"event":   {"changed", "deleted", "expired"},
		"disk":    {"loaded", "loaded records", "failed", "written", "written at the end", "in use", "store failed"},
		"promise": {"members fixed", "members joined", "members left", "members joined and left"},
		"checked": {
			"acknowledged writes", "acknowledged writes on disk", "acknowledged writes of nodes that are gone", "acknowledged durable writes of nodes that are gone",
			"own writes", "reads that have to see writes", "reads of registers", "repaired reads", "writes when a node is pruned",
			"elements added and removed by two", "sums that are known", "converges", "prunes", "records",
		},
		"data": {"asked while loading", "stray message", "lost with its last replica", "all who had something have ended", "pruned while who had it was away"},
	} {
		for _, row := range rows {
			d.c.coverage.hit(table, row, 0)
		}
	}
}
