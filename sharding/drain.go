// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/refold-io/refold/internal/shardcore"
)

// tended is what a site needs for operators and other nodes that look at it.
type tended struct {
	questions atomic.Int32 // that wait for the loop
	drained   bool         // it hosts nothing, for good
	drainers  []chan error // closed when it does not, or told why it does
}

// Drain gives all shards of this node away, in order and without a loss, and waits until it hosts none. The region goes on: entities
// are still reached through it, and its node may still have the coordinator, but no shard comes back before the node is
// started again, or Undrain is called. Where no other region is left shards have no home, and what is for them waits. The error is that of
// ctx; then the rest is given away without anybody waiting. It matches ErrUndrained if that was called meanwhile.
func (r *Region[C]) Drain(ctx context.Context) error {
	if err := r.site.drain(ctx); err != nil {
		return fmt.Errorf("sharding: drain type %q on %v: %w", r.site.name, r.site.node.Self(), err)
	}
	return nil
}

// ErrUndrained says that a node takes shards again.
var ErrUndrained = errors.New("sharding: the node was told to take shards again")

// Undrain takes a Drain back: the node may be given shards again, by the next rebalance. What has not moved yet stays. Nothing happens where
// nothing was drained. The error is that of ctx, or ErrStopped.
func (r *Region[C]) Undrain(ctx context.Context) error {
	if err := r.site.undrain(ctx); err != nil {
		return fmt.Errorf("sharding: let %v take shards of type %q again: %w", r.site.node.Self(), r.site.name, err)
	}
	return nil
}

func (s *site) undrain(ctx context.Context) error {
	return s.call(ctx, func() { //nolint:contextcheck // the loop has a context of its own
		if !s.drained {
			return
		}
		s.drained = false
		if !s.halted && !s.leaving {
			s.step(shardcore.Return{})
			s.cfg.Region.Instance = s.machine.Instance()
		}
		for _, waits := range s.drainers {
			waits <- ErrUndrained
		}
		s.drainers = nil
	})
}

func (s *site) drain(ctx context.Context) error {
	drained := s.beginDrain() //nolint:contextcheck // the loop has a context of its own
	select {
	case err := <-drained:
		return err
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginDrain begins to give all shards away. What it returns is closed when that is done.
func (s *site) beginDrain() <-chan error {
	drained := make(chan error, 1)
	s.inbox.add(item{do: func() {
		s.drainers = append(s.drainers, drained)
		s.drained = true
		if !s.halted {
			s.step(shardcore.Leave{Stay: true})
		}
		s.tellDrained()
	}})
	return drained
}

// tellDrained tells those who wait for it that this node hosts nothing.
func (s *site) tellDrained() {
	if len(s.drainers) == 0 || len(s.machine.Hosted()) > 0 {
		return
	}
	for _, waits := range s.drainers {
		close(waits)
	}
	s.drainers = nil
}
