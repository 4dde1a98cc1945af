// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding/allocation"
)

// hostCoordinator is Run of the singleton. The node runs the coordinator until it returns.
func (s *shell) hostCoordinator(ctx context.Context, _ *cluster.Inbox) error {
	stopped := make(chan struct{})
	s.inbox.Add(item{input: shardcore.StartCoordinator{}})
	select {
	case <-ctx.Done():
	case <-s.done:
		return nil
	}
	s.post(func() { //nolint:contextcheck // the loop uses its own context
		s.coordinatorStopped = stopped
		s.step(shardcore.StopCoordinator{})
	})
	select {
	case <-stopped:
	case <-s.done:
	}
	return nil
}

// callStores starts the requested calls, each on its own goroutine, so that none blocks the loop.
func (s *shell) callStores(e *shardcore.Effects) {
	if id := e.Load; id != 0 {
		s.callAsync("load", s.opts.Tuning.LoadTimeout, func(ctx context.Context) (coordinator.Input, error) {
			return s.load(ctx, id)
		}, func(error) coordinator.Input { return coordinator.LoadFailed{ID: id} })
	}
	if term := e.CheckTerm; term != 0 {
		s.background.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, s.opts.Tuning.LoadTimeout)
			defer cancel()
			s.logCallFailure("load the term", panics.Catch(func() error {
				l, err := s.store.Load(ctx)
				if err == nil {
					s.inbox.Add(item{input: shardcore.TermChecked{Term: term, Stored: l.Term}})
				}
				return err
			}))
		})
	}
	if save := e.Save; save != nil {
		s.callAsync("save", s.opts.Tuning.SaveTimeout, func(ctx context.Context) (coordinator.Input, error) {
			c := Change{Term: save.Term, Rev: save.Rev, Claim: save.IsClaim()}
			c.Events, c.After = save.Encode()
			return coordinator.Saved{ID: save.ID}, s.store.Save(ctx, c)
		}, func(err error) coordinator.Input {
			return coordinator.SaveFailed{ID: save.ID, Fenced: errors.Is(err, ErrFenced)}
		})
	}
	if add := e.AddShards; add != nil {
		s.callAsync("remember shards", s.opts.Tuning.SaveTimeout, func(ctx context.Context) (coordinator.Input, error) {
			return coordinator.ShardsAdded{ID: add.ID}, s.shardList().AddShards(ctx, add.Shards)
		}, func(error) coordinator.Input { return coordinator.ShardsAdded{ID: add.ID, Failed: true} })
	}
	if ask := e.Ask; ask != nil {
		s.callAsync("allocate", s.opts.Tuning.StrategyTimeout, func(ctx context.Context) (coordinator.Input, error) {
			var failed error
			homes := allocation.All(ask.View, ask.Requests, func(view allocation.View, request allocation.Request) (identity.Node, bool) {
				n, err := s.opts.Strategy.Allocate(ctx, view, request)
				failed = errors.Join(failed, err)
				return n, err == nil && !n.IsZero()
			})
			s.logCallFailure("allocate", failed)
			return coordinator.HomesChosen{ID: ask.ID, Homes: homes}, nil
		}, func(error) coordinator.Input {
			return coordinator.HomesChosen{ID: ask.ID, Homes: make([]identity.Node, len(ask.Requests))}
		})
	}
	if ask := e.Rebalance; ask != nil {
		s.callAsync("rebalance", s.opts.Tuning.StrategyTimeout, func(ctx context.Context) (coordinator.Input, error) {
			moves, err := s.opts.Strategy.Rebalance(ctx, ask.View)
			return coordinator.Rebalanced{ID: ask.ID, Shards: moves}, err
		}, func(error) coordinator.Input { return coordinator.Rebalanced{ID: ask.ID} })
	}
}

// callAsync passes the result of f to the machine, or the result of failed if f fails.
func (s *shell) callAsync(call string, limit time.Duration, f func(context.Context) (coordinator.Input, error), failed func(error) coordinator.Input) {
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		defer cancel()
		defer time.AfterFunc(limit+callGracePeriod, func() { s.logCallFailure(call, errCallLate) }).Stop()
		var in coordinator.Input
		err := panics.Catch(func() (err error) {
			in, err = f(ctx)
			return err
		})
		if err != nil {
			s.logCallFailure(call, err)
			in = failed(err)
		}
		s.inbox.Add(item{input: shardcore.CoordinatorReply{Input: in}})
	})
}

// errCallLate reports that a call has not returned although its context ended.
var errCallLate = errors.New("the call has not returned after its timeout; the coordinator waits for it")

// callGracePeriod is how long after its timeout a call may return without a warning.
const callGracePeriod = 5 * time.Second

func (s *shell) logCallFailure(call string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "call of the coordinator's store or strategy failed", slog.String("call", call), slog.Any("error", err))
	}
}
