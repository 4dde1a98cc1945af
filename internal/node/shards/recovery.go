// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore/shard"
)

// recovery is when remembered entities are started at a rate, which is that of the node: some in each interval, whatever
// their shards.
type recovery struct {
	at   time.Duration // when the next ones are; Never: none wait
	last time.Duration // when the last ones were
	used bool
	from Shard // whose turn it is
}

// begin sees to it that those who wait get their turn.
func (r *recovery) begin(now time.Duration) {
	if r.at == Never {
		r.at = now
		if r.used {
			r.at = max(now, r.last)
		}
	}
}

// recover starts the next ones. Shards take turns: who has many does not keep others waiting.
func (m *Machine) recover() {
	r := &m.recovery
	r.at = Never
	left := m.cfg.Shard.RecoverNumber
	shards := slices.Sorted(maps.Keys(m.runs))
	i, _ := slices.BinarySearch(shards, r.from)
	shards = slices.Concat(shards[i:], shards[:i])
	for some := true; left > 0 && some; {
		some = false
		for _, s := range shards {
			at := m.runs[s]
			if at == nil || at.m.Recovering() == 0 {
				continue
			}
			if left == 0 {
				r.from = s
				break
			}
			some = true
			left--
			m.runStep(at, shard.Recover{Number: 1})
		}
	}
	r.at = Never
	if left < m.cfg.Shard.RecoverNumber {
		r.used, r.last = true, m.now+m.cfg.Shard.RecoverInterval
	}
	for _, s := range shards {
		if at := m.runs[s]; at != nil && at.m.Recovering() > 0 {
			r.begin(m.now)
			return
		}
	}
}
