// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding/allocation"
)

// strategy is the strategy of all coordinators of a simulation.
type strategy interface {
	Allocate(v allocation.View, request allocation.Request) (identity.Node, bool)
	Rebalance(v allocation.View) []allocation.Shard
}

func (p *ShardsPlan) strategy() strategy {
	if p.Config.Coordinator.ReadsLoad {
		return allocation.ByLoad{Rest: 20 * time.Second}
	}
	return allocation.LeastShards{}
}

// reportInterval is the interval at which nodes report their load.
const reportInterval = 2 * time.Second

// reportLoad reports a load that depends on the number of the shard, with noise. A few shards are
// much busier than the others.
func (s *shardNode) reportLoad() {
	s.after(reportInterval, func() {
		s.reportLoad()
		l := coordinator.Load{Window: reportInterval, CPU: reportInterval / 2, Cores: 2, Memory: 1 << 20}
		for _, n := range s.m.Hosted() {
			busy := s.d.between(0, reportInterval/20) + reportInterval/time.Duration(5*(1+n%8))
			l.Shards = append(l.Shards, coordinator.ShardLoad{Shard: n, Busy: busy, Commands: uint64(n)})
		}
		s.d.hit("sharding", "load reported")
		s.step(shardcore.ReportLoad{Load: l})
	})
}

// pin lets an operator move a shard to a random node, or release it.
func (d *sharding) pin() {
	for _, s := range d.living() {
		c := s.m.LocalCoordinator()
		if c == nil || c.Phase() != coordinator.Active {
			continue
		}
		living := d.living()
		p := coordinator.Pin{Shard: shardcore.Shard(d.rand.IntN(d.plan.Shards)), Node: living[d.rand.IntN(len(living))].h.p.Node().Name} //nolint:gosec // small
		what := "pinned"
		state, _ := c.State()
		if pins := state.Pins(); len(pins) > 0 && d.rand.IntN(2) == 0 {
			p, what = coordinator.Pin{Shard: pins[d.rand.IntN(len(pins))].Shard}, "released"
		}
		if c.CheckPin(p.Shard, p.Node) == nil {
			d.hit("sharding", what)
			s.schedule(shardcore.SetPin{Pin: p})
		}
		return
	}
}

// pinnedShardsStay checks that a hand-off takes a shard away from the node that it is pinned to only
// if that node leaves or was drained.
func pinnedShardsStay(s *shardNode, n *coordinator.Note) {
	c := s.m.LocalCoordinator()
	if n.Kind != coordinator.HandOffBegun || c == nil {
		return
	}
	state, _ := c.State()
	for _, shard := range n.Shards {
		name, pinned := state.Pin(shard)
		home, _ := state.Home(shard)
		at := s.d.byNode[home]
		if !pinned || home.Name != name || at == nil || at.gone || at.drains > 0 || at.m.Leaving() || s.d.c.leaving[home] {
			continue
		}
		s.h.violate("pinned-shards-stay", "shard %d moves away from %v, which it is pinned to", shard, home)
	}
}

// pinnedElsewhere returns a description of a shard that is not on the node that it is pinned to
// although that node can host it, or "".
func (d *sharding) pinnedElsewhere() string {
	for _, s := range d.living() {
		c := s.m.LocalCoordinator()
		if c == nil || !s.hasSingleton {
			continue
		}
		state, _ := c.State()
		for _, p := range state.Pins() {
			home, found := state.Home(p.Shard)
			if found && home.Name != p.Node && c.CheckPin(p.Shard, p.Node) == nil {
				return fmt.Sprintf("shard %d is on %v and pinned to %s", p.Shard, home, p.Node)
			}
		}
	}
	return ""
}
