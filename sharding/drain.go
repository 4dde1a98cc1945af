// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/internal/shardcore"
)

// Drain hands off all shards of this node without loss and waits until the node hosts none. The
// region continues to route commands, and the node may still run the coordinator, but it is
// allocated no shards until it restarts or Undrain is called. If there is no other region, the
// shards have no home and their commands wait. The error is that of ctx, and the hand-offs continue
// then. It matches ErrUndrained if Undrain was called before the end.
func (r *Region[C]) Drain(ctx context.Context) error {
	if err := r.shell.drain(ctx); err != nil {
		return fmt.Errorf("sharding: drain type %q on %v: %w", r.shell.name, r.shell.node.Self(), err)
	}
	return nil
}

// ErrUndrained reports that Undrain ended a Drain.
var ErrUndrained = errors.New("sharding: the drain was canceled")

// Undrain cancels Drain: the next rebalance may allocate shards to the node again. Shards that have
// not moved stay. It does nothing without a Drain. The error is that of ctx, or ErrStopped.
func (r *Region[C]) Undrain(ctx context.Context) error {
	if err := r.shell.undrain(ctx); err != nil {
		return fmt.Errorf("sharding: undrain type %q on %v: %w", r.shell.name, r.shell.node.Self(), err)
	}
	return nil
}

func (s *shell) undrain(ctx context.Context) error {
	return s.call(ctx, func() { //nolint:contextcheck // the loop uses its own context
		if !s.machine.Drained() {
			return
		}
		s.step(shardcore.Undrain{})
		for _, waits := range s.drainWaiters {
			waits <- ErrUndrained
		}
		s.drainWaiters = nil
	})
}

func (s *shell) drain(ctx context.Context) error {
	drained := s.beginDrain() //nolint:contextcheck // the loop uses its own context
	select {
	case err := <-drained:
		return err
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginDrain starts a drain. The channel is closed at its end, or receives an error.
func (s *shell) beginDrain() <-chan error {
	drained := make(chan error, 1)
	s.post(func() {
		s.drainWaiters = append(s.drainWaiters, drained)
		s.step(shardcore.Leave{KeepRouting: true})
	})
	return drained
}

// notifyDrained ends the waiting of Drain if this node hosts nothing.
func (s *shell) notifyDrained() {
	if len(s.drainWaiters) == 0 || len(s.machine.Hosted()) > 0 {
		return
	}
	for _, waits := range s.drainWaiters {
		close(waits)
	}
	s.drainWaiters = nil
}
