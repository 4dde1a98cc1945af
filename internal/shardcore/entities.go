// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package shardcore

import (
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore/passivation"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

type shardRun struct {
	ShardRun

	m      *shard.Machine
	nextAt time.Duration // next call of Tick
}

// limits returns the share of one shard in the limits of the node, for a number of shards.
func (m *Machine) limits(runs int) shard.Limits {
	return shard.Limits{Entities: passivation.PerShard(m.cfg.Shard.Passivation.Limit, runs), Starts: max(1, m.cfg.Shard.Starts/max(1, runs))}
}

func (m *Machine) startRun(at ShardRun) {
	cfg := m.cfg.Shard
	limits := m.limits(len(m.runs) + 1)
	cfg.Entities, cfg.Starts = limits.Entities, limits.Starts
	m.uneven = m.uneven || limits != m.limited
	s, err := shard.New(cfg)
	if err != nil { // impossible: the configuration was checked, and the limits are not negative
		m.queue = append(m.queue, func() { m.regionStep(region.ShardDone{Shard: at.Shard, Generation: at.Generation}) })
		return
	}
	r := &shardRun{ShardRun: at, m: s}
	m.runs[at.Shard] = r
	m.runEffects(r, s.Open(m.now))
}

func (m *Machine) runStep(at *shardRun, in shard.Input) { m.runEffects(at, at.m.Step(m.now, in)) }

func (m *Machine) runEffects(at *shardRun, out shard.Effects) {
	for _, r := range out.Refused {
		m.refuse(r.Token, r.Reason)
	}
	if out.Acquire || out.Release {
		m.out.Leases = append(m.out.Leases, LeaseCall{at.ShardRun, out.Release})
	}
	if out.Load {
		m.out.Remember = append(m.out.Remember, RememberCall{ShardRun: at.ShardRun})
	}
	if out.Update != nil {
		m.out.Remember = append(m.out.Remember, RememberCall{at.ShardRun, out.Update})
	}
	if out.Index != nil {
		m.out.Index = append(m.out.Index, IndexCall{at.ShardRun, *out.Index})
	}
	for _, id := range out.Indexed {
		m.out.Indexed = append(m.out.Indexed, IndexedEntity{at.ShardRun, id})
	}
	for _, a := range out.Actions {
		action := Action{ShardRun: at.ShardRun, Action: a}
		if a.Kind == shard.Pass {
			action.Message = m.takeMessage(a.Token).Message
		}
		m.out.Actions = append(m.out.Actions, action)
	}
	if m.cfg.Shard.RecoverOnRequest && at.m.Recovering() > 0 {
		m.recovery.begin(m.now)
	}
	at.nextAt = at.m.Next()
	m.runsAt = min(m.runsAt, at.nextAt)
	if out.Done != 0 {
		delete(m.runs, at.Shard)
		m.out.Ended = append(m.out.Ended, at.ShardRun)
		m.queue = append(m.queue, func() { m.regionStep(region.ShardDone{Shard: at.Shard, Generation: at.Generation}) })
	}
}

func (m *Machine) tickRuns() {
	m.runsAt = Never
	for _, s := range slices.Sorted(maps.Keys(m.runs)) {
		at := m.runs[s]
		if m.now >= at.nextAt {
			m.runEffects(at, at.m.Tick(m.now))
		}
		m.runsAt = min(m.runsAt, at.nextAt)
	}
}

// shareLimits divides the limits of the node among its shards. With thousands of shards the shares
// rarely change. While the shares stay the same, no shard is stepped. Without this check, each
// start and end of a shard would step all shards.
func (m *Machine) shareLimits() {
	m.shared = len(m.runs)
	limits := m.limits(m.shared)
	if limits == m.limited && !m.uneven {
		return
	}
	m.limited, m.uneven = limits, false
	for _, s := range slices.Sorted(maps.Keys(m.runs)) {
		m.runStep(m.runs[s], limits)
	}
}

// recovery limits the rate at which remembered entities are started on the node, across all shards.
type recovery struct {
	at   time.Duration // time of the next start, Never if none waits
	last time.Duration // earliest time of the start after the last one
	used bool
	from Shard // the shard with the next turn
}

func (r *recovery) begin(now time.Duration) {
	if r.at == Never {
		r.at = now
		if r.used {
			r.at = max(now, r.last)
		}
	}
}

// recover starts the next entities. Shards take turns, so that a large shard does not delay the
// others.
func (m *Machine) recover() {
	r := &m.recovery
	r.at = Never
	left := m.cfg.RecoverNumber
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
	if left < m.cfg.RecoverNumber {
		r.used, r.last = true, m.now+m.cfg.RecoverInterval
	}
	for _, s := range shards {
		if at := m.runs[s]; at != nil && at.m.Recovering() > 0 {
			r.begin(m.now)
			return
		}
	}
}
