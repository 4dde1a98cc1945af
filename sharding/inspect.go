// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
)

// State is what a region on a node knows and runs.
type State struct {
	// Registered says that a coordinator knows the region, Coordinator on which node that is.
	Registered  bool
	Coordinator identity.Node
	// Mismatch is why the coordinator does not let the region register, nil unless that is so. It matches ErrMismatch.
	Mismatch error
	// Shards are those that this node hosts, sorted by number.
	Shards []ShardState
	// Waiting is how many commands wait, for homes, shards or entities.
	Waiting int
	// Asks is how many answers from other nodes are awaited, of all types.
	Asks int
	// Queued is how many commands have waited for the region to look at them since it was started. The others went straight to their
	// entity, or to the node that has it.
	Queued uint64
	// Unanswered is how many callers have left before the answer of another node came, since it was started.
	Unanswered uint64
	// Dropped is how many commands have reached nobody since the region was started.
	Dropped uint64
}

// ShardState is a shard on a node.
type ShardState struct {
	Shard Shard
	// Entities are those that run, sorted.
	Entities []string
	// Tracked is how many there are together with those that will run.
	Tracked int
}

// State returns what the region knows and runs. The error is that of ctx, or ErrStopped.
func (r *Region[C]) State(ctx context.Context) (state State, err error) {
	s := r.site
	err = s.call(ctx, func() {
		m := s.machine
		state.Registered = m.Registered()
		if boss, ok := m.Boss(); ok {
			state.Coordinator = boss
		}
		for _, n := range m.Hosted() {
			state.Shards = append(state.Shards, ShardState{n, m.Running(n), m.Tracked(n)})
		}
		state.Waiting = m.Waiting()
	})
	if err != nil {
		return State{}, fmt.Errorf("sharding: state of type %q: %w", s.name, err)
	}
	state.Mismatch = s.mismatched()
	state.Unanswered = s.unanswered.Load()
	state.Asks, state.Queued, state.Dropped = s.board.asks.len(), s.looped.Load(), s.dropped.Load()
	return state, nil
}

// Home returns the node that has a shard, as far as this node knows. The error is that of ctx, or ErrStopped.
func (r *Region[C]) Home(ctx context.Context, shard Shard) (home identity.Node, known bool, err error) {
	if err = r.site.call(ctx, func() { home, known = r.site.machine.Home(shard) }); err != nil {
		err = fmt.Errorf("sharding: home of shard %d of type %q: %w", shard, r.site.name, err)
	}
	return home, known, err
}

// call lets the loop call f, which must not block, and waits for that. If it fails f is not called, now or later: what it would set belongs to
// the caller again.
func (s *site) call(ctx context.Context, f func()) error {
	var taken atomic.Bool // by who comes first: the loop, or a ctx that ends
	called := make(chan struct{})
	if !s.inbox.add(item{do: func() {
		defer close(called)
		if taken.CompareAndSwap(false, true) {
			f()
		}
	}}) {
		return ErrStopped
	}
	select {
	case <-called:
		return nil
	case <-ctx.Done():
		if taken.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		<-called
		return nil
	}
}
