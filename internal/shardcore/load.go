// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"cmp"
	"slices"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
)

// reportLoad completes a report and passes it to the region. Shards that were not busy are included
// if messages wait for them or entities are in memory.
func (m *Machine) reportLoad(l coordinator.Load) {
	byShard := make(map[Shard]*coordinator.ShardLoad, len(l.Shards))
	at := func(s Shard) *coordinator.ShardLoad {
		if byShard[s] == nil {
			byShard[s] = &coordinator.ShardLoad{Shard: s}
		}
		return byShard[s]
	}
	for _, s := range l.Shards {
		if m.runs[s.Shard] != nil { // the load of a shard that has just left counts for no region
			*at(s.Shard) = s
		}
	}
	for s, run := range m.runs {
		if n := run.m.Len(); n > 0 {
			at(s).Entities = n
		}
	}
	for _, msg := range m.waiting {
		if m.runs[msg.shard] != nil {
			at(msg.shard).Waiting++
		}
	}
	l.Shards = make([]coordinator.ShardLoad, 0, len(byShard))
	for _, s := range byShard {
		l.Shards = append(l.Shards, *s)
		l.Busy += s.Busy
		l.Commands += s.Commands
	}
	slices.SortFunc(l.Shards, func(a, b coordinator.ShardLoad) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(b.Commands, a.Commands), cmp.Compare(a.Shard, b.Shard))
	})
	l.Shards = l.Shards[:min(len(l.Shards), coordinator.MaxLoadShards)]
	slices.SortFunc(l.Shards, func(a, b coordinator.ShardLoad) int { return cmp.Compare(a.Shard, b.Shard) })
	m.regionStep(region.ReportLoad{Load: &l})
}
