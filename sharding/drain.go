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
type operatorState struct {
	pendingQueries atomic.Int32 // that wait for the loop
	drained        bool         // it hosts nothing, for good
	drainWaiters   []chan error // closed when it does not, or told why it does
}

// Drain gives all shards of this node away, in order and without a loss, and waits until it hosts none. The region goes on: entities
// are still reached through it, and its node may still have the coordinator, but no shard comes back before the node is
// started again, or Undrain is called. Where no other region is left shards have no home, and what is for them waits. The error is that of
// ctx; then the rest is given away without anybody waiting. It matches ErrUndrained if that was called meanwhile.
func (r *Region[C]) Drain(ctx context.Context) error {
	if err := r.shell.drain(ctx); err != nil {
		return fmt.Errorf("sharding: drain type %q on %v: %w", r.shell.name, r.shell.node.Self(), err)
	}
	return nil
}

// ErrUndrained says that a node takes shards again.
var ErrUndrained = errors.New("sharding: the node was told to take shards again")

// Undrain takes a Drain back: the node may be given shards again, by the next rebalance. Kind has not moved yet stays. Nothing happens where
// nothing was drained. The error is that of ctx, or ErrStopped.
func (r *Region[C]) Undrain(ctx context.Context) error {
	if err := r.shell.undrain(ctx); err != nil {
		return fmt.Errorf("sharding: let %v take shards of type %q again: %w", r.shell.node.Self(), r.shell.name, err)
	}
	return nil
}

func (s *shell) undrain(ctx context.Context) error {
	return s.call(ctx, func() { //nolint:contextcheck // the loop has a context of its own
		if !s.drained {
			return
		}
		s.drained = false
		if !s.halted && !s.leaving {
			s.step(shardcore.Undrain{})
			s.cfg.Region.Instance = s.machine.Instance()
		}
		for _, waits := range s.drainWaiters {
			waits <- ErrUndrained
		}
		s.drainWaiters = nil
	})
}

func (s *shell) drain(ctx context.Context) error {
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

// beginDrain begins to give all shards away. Kind it returns is closed when that is done.
func (s *shell) beginDrain() <-chan error {
	drained := make(chan error, 1)
	s.inbox.add(item{call: func() {
		s.drainWaiters = append(s.drainWaiters, drained)
		s.drained = true
		if !s.halted {
			s.step(shardcore.Leave{KeepRouting: true})
		}
		s.notifyDrained()
	}})
	return drained
}

// notifyDrained tells those who wait for it that this node hosts nothing.
func (s *shell) notifyDrained() {
	if len(s.drainWaiters) == 0 || len(s.machine.Hosted()) > 0 {
		return
	}
	for _, waits := range s.drainWaiters {
		close(waits)
	}
	s.drainWaiters = nil
}
