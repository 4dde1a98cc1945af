// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// types returns the types with a region or a proxy on the node, sorted.
func (b *switchboard) types() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	types := make([]string, 0, len(b.sites))
	for name := range b.sites {
		types = append(types, name)
	}
	slices.Sort(types)
	return types
}

// adminRegions returns the regions of all types behind one.
func (b *switchboard) adminRegions(ctx context.Context, after string) (answer AdminAnswer, err error) {
	for _, name := range b.types() {
		s := b.find(name)
		switch {
		case name <= after || s == nil:
			continue
		case len(answer.Regions) == adminPage/10:
			answer.More = true
			return answer, nil
		}
		region, err := s.adminRegion(ctx)
		if errors.Is(err, ErrStopped) {
			continue
		}
		if err != nil {
			return answer, err
		}
		answer.Regions = append(answer.Regions, region)
	}
	return answer, nil
}

// administer answers an operator who asks for a type.
func (s *site) administer(ctx context.Context, operator string, r *AdminRequest) (answer AdminAnswer, err error) {
	switch r.Command {
	case AdminRegions:
		var region AdminRegion
		region, err = s.adminRegion(ctx)
		answer.Regions = []AdminRegion{region}
	case AdminShards:
		err = s.call(ctx, func() { answer.Shards, answer.More = s.adminShards(r.Behind) })
	case AdminEntities:
		err = s.call(ctx, func() { answer.Entities, answer.More = s.adminEntities(r.Shard, r.After) })
	case AdminFind:
		answer.Found, err = s.adminFind(ctx, r.ID)
	case AdminRebalance:
		s.commanded(ctx, operator, r)
		answer.Moving, err = s.adminRebalance(ctx)
	case AdminDrain:
		s.commanded(ctx, operator, r)
		if s.entities != nil {
			s.beginDrain() //nolint:contextcheck // nobody waits for it here
		}
	case AdminUndrain:
		s.commanded(ctx, operator, r)
		err = s.undrain(ctx)
	default:
		err = fmt.Errorf("%w: command %.100q", ErrInvalid, string(r.Command))
	}
	if err != nil {
		return AdminAnswer{}, err
	}
	return answer, nil
}

func (s *site) commanded(ctx context.Context, operator string, r *AdminRequest) {
	s.log.InfoContext(ctx, "an operator commands", slog.String("operator", operator), slog.String("command", string(r.Command)))
}

// adminRegion returns what the region runs and knows.
func (s *site) adminRegion(ctx context.Context) (a AdminRegion, err error) {
	a = AdminRegion{Type: s.name, Role: s.opts.Role, Total: s.opts.Shards, Proxy: s.entities == nil, Dropped: s.dropped.Load()}
	if why := s.mismatched(); why != nil {
		a.Mismatch = why.Error()
	}
	err = s.call(ctx, func() {
		m := s.machine
		a.Drained, a.Waiting = m.Leaving(), m.Waiting()
		if boss, ok := m.Boss(); ok {
			a.Coordinator = boss.String()
		}
		for _, c := range s.counts() {
			a.Shards++
			a.Entities += c.Entities
		}
		c := m.Coordinator()
		if c == nil {
			return
		}
		state, _ := c.State()
		a.CoordinatorState = &AdminCoordinator{
			Term: c.Term(), Phase: c.Phase().String(), Regions: len(state.Regions()), Proxies: len(state.Proxies()), Placed: state.Shards(), Moving: len(c.Moving()), Refused: c.Refused(),
		}
	})
	return a, err
}

// adminShards returns shards of this node, from one on. It belongs to the loop.
func (s *site) adminShards(behind Shard) (page []AdminShard, more bool) {
	for _, n := range s.machine.Hosted() {
		switch {
		case n < behind:
		case len(page) == adminPage:
			return page, true
		default:
			page = append(page, AdminShard{n, s.machine.Tracked(n)})
		}
	}
	return page, false
}

// adminEntities returns the entities of a shard that run on this node, behind one. It belongs to the loop.
func (s *site) adminEntities(n Shard, after string) (page []string, more bool) {
	room := adminBytes
	for _, id := range s.machine.Running(n) {
		if id <= after && after != "" {
			continue
		}
		if room -= 6*len(id) + 3; len(page) == adminPage || room < 0 { // as JSON a byte takes six at most
			return page, true
		}
		page = append(page, id)
	}
	return page, false
}

// adminFind returns where an entity is.
func (s *site) adminFind(ctx context.Context, id string) (*AdminFound, error) {
	n, err := s.shardOf(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	found := &AdminFound{Shard: n}
	err = s.call(ctx, func() {
		m := s.machine
		home, known := m.Home(n)
		if c := m.Coordinator(); c != nil && !known {
			state, _ := c.State()
			home, known = state.Home(n)
		}
		if known {
			found.Home = home.String()
		}
		if boss, ok := m.Boss(); ok {
			found.Coordinator = boss.String()
		}
		found.Running = slices.Contains(m.Running(n), id)
	})
	return found, err
}

// rebalancePoll is how often it is looked whether the strategy has answered.
const rebalancePoll = 10 * time.Millisecond

// adminRebalance asks the strategy which shards should move, and waits for its answer.
func (s *site) adminRebalance(ctx context.Context) (moving int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StrategyTimeout+queryTimeout, errUnanswered)
	defer cancel()
	ticker := time.NewTicker(rebalancePoll)
	defer ticker.Stop()
	var asked *coordinator.Machine
	for before := 0; ; {
		here, open := false, false
		err := s.call(ctx, func() { //nolint:contextcheck // the loop has a context of its own
			c := s.machine.Coordinator()
			if c != nil && asked == nil {
				asked, before = c, c.HandOffs()
				s.step(shards.Rebalance{})
			}
			if here = c != nil && c == asked; here {
				open, moving = c.Rebalancing(), c.HandOffs()-before
			}
		})
		switch {
		case err != nil:
			return 0, err
		case !here:
			return 0, fmt.Errorf("%w on %v", ErrNoCoordinator, s.node.Self())
		case !open:
			return moving, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
