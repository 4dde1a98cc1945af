// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding/allocation"
)

// preside is the singleton: as long as it runs this node has the coordinator.
func (s *site) preside(ctx context.Context, _ *cluster.Inbox) error {
	dismissed := make(chan struct{})
	s.inbox.add(item{do: func() { //nolint:contextcheck // the loop has a context of its own
		s.presides = true
		s.appoint()
	}})
	select {
	case <-ctx.Done():
	case <-s.done:
		return nil
	}
	s.inbox.add(item{do: func() { //nolint:contextcheck // the loop has a context of its own
		s.presides = false
		s.dismissed = dismissed
		if !s.holds {
			s.tellDismissed()
			return
		}
		s.step(shardcore.Dismiss{})
	}})
	select {
	case <-dismissed:
	case <-s.done:
	}
	return nil
}

// appoint gives the machine the coordinator, if it is to have it.
func (s *site) appoint() {
	if s.presides && !s.holds && !s.halted {
		s.holds = true
		s.step(shardcore.Appoint{})
	}
}

func (s *site) tellDismissed() {
	if s.dismissed != nil {
		close(s.dismissed)
		s.dismissed = nil
	}
}

// consult puts the machine's questions to the store and to the strategy. Whoever answers has a goroutine of its own, and never holds up
// the loop.
func (s *site) consult(e *shardcore.Effects) {
	if id := e.Load; id != 0 {
		s.ask("load", s.opts.StateTimeout, func(ctx context.Context) (coordinator.Input, error) {
			return s.load(ctx, id)
		}, func(error) coordinator.Input { return coordinator.LoadFailed{ID: id} })
	}
	if save := e.Save; save != nil {
		s.ask("save", s.opts.StateTimeout, func(ctx context.Context) (coordinator.Input, error) {
			return coordinator.Saved{ID: save.ID}, s.store.Save(ctx, save.Change)
		}, func(err error) coordinator.Input {
			return coordinator.SaveFailed{ID: save.ID, Fenced: errors.Is(err, ErrFenced)}
		})
	}
	if add := e.AddShards; add != nil {
		s.ask("remember shards", s.opts.StateTimeout, func(ctx context.Context) (coordinator.Input, error) {
			return coordinator.ShardsAdded{ID: add.ID}, s.memory.AddShards(ctx, add.Shards)
		}, func(error) coordinator.Input { return coordinator.ShardsAdded{ID: add.ID, Failed: true} })
	}
	if ask := e.Ask; ask != nil {
		s.ask("allocate", s.opts.StrategyTimeout, func(ctx context.Context) (coordinator.Input, error) {
			var failed error
			homes := allocation.All(ask.View, ask.Requests, func(view allocation.View, request allocation.Request) (identity.Node, bool) {
				n, err := s.opts.Strategy.Allocate(ctx, view, request)
				failed = errors.Join(failed, err)
				return n, err == nil && !n.IsZero()
			})
			s.complain("allocate", failed)
			return coordinator.Placed{ID: ask.ID, Homes: homes}, nil
		}, func(error) coordinator.Input {
			return coordinator.Placed{ID: ask.ID, Homes: make([]identity.Node, len(ask.Requests))}
		})
	}
	if ask := e.Rebalance; ask != nil {
		s.ask("rebalance", s.opts.StrategyTimeout, func(ctx context.Context) (coordinator.Input, error) {
			moves, err := s.opts.Strategy.Rebalance(ctx, ask.View)
			return coordinator.Rebalanced{ID: ask.ID, Shards: moves}, err
		}, func(error) coordinator.Input { return coordinator.Rebalanced{ID: ask.ID} })
	}
}

// ask calls f, and tells the machine what it says, or what its failure means.
func (s *site) ask(what string, limit time.Duration, f func(context.Context) (coordinator.Input, error), failed func(error) coordinator.Input) {
	m := s.machine
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.base, limit)
		defer cancel()
		defer s.watch(what, limit)()
		var in coordinator.Input
		err := contained(func() (err error) {
			in, err = f(ctx)
			return err
		})
		if err != nil {
			s.complain(what, err)
			in = failed(err)
		}
		s.inbox.add(item{do: func() {
			if s.machine == m { // it is the one that has asked
				s.step(shardcore.Answer{Input: in})
			}
		}})
	})
}

// errLate says that a call does not end with its context.
var errLate = errors.New("it does not return, though its time is over; nothing goes on before")

// lateBy is how long after the end of its time a call may return.
const lateBy = 5 * time.Second

// watch complains if a call to the store or the strategy, which must heed the end of its context, goes on for too long. What it returns is to be
// called when the call has returned.
func (s *site) watch(what string, limit time.Duration) (stop func()) {
	late := time.AfterFunc(limit+lateBy, func() { s.complain(what, errLate) })
	return func() { late.Stop() }
}

// contained calls f, which is somebody else's and may panic.
func contained(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	return f()
}

func (s *site) complain(what string, err error) {
	if err != nil && s.base.Err() == nil {
		s.log.LogAttrs(s.base, slog.LevelWarn, "the coordinator's store or strategy has failed", slog.String("call", what), slog.Any("error", err))
	}
}
