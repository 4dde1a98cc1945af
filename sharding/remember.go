// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// storeCall identifies the calls of a store for a shard, which run one after the other.
type storeCall struct {
	shard Shard
	index bool // of the index
}

// remember calls the store of remembered entities.
func (s *shell) remember(r *shardcore.RememberCall) {
	update := r.Update
	s.callRememberStore(s.rememberStore, storeCall{shard: r.Shard}, r.ShardRun, update, func(ids []string, err error) shard.Input {
		if err != nil && s.ctx.Err() == nil {
			s.log.LogAttrs(s.ctx, slog.LevelWarn, "store of remembered entities failed: restarting the shard",
				slog.Any("shard", r.Shard), slog.Bool("update", update != nil), slog.Any("error", err))
		}
		return remembered(update, ids, err)
	})
}

// callIndex calls the store of the index of entities with pending work.
func (s *shell) callIndex(c *shardcore.IndexCall) {
	id, update := c.ID, c.Update
	s.callRememberStore(s.wakeStore, storeCall{c.Shard, true}, c.ShardRun, update, func(ids []string, err error) shard.Input {
		if err != nil && s.ctx.Err() == nil {
			s.log.LogAttrs(s.ctx, slog.LevelWarn, "store of Options.Wake failed: commands that begin deliveries or set a deadline wait",
				slog.Any("shard", c.Shard), slog.Bool("update", update != nil), slog.Any("error", err))
		}
		switch {
		case err != nil:
			return shard.IndexFailed{ID: id, Fenced: errors.Is(err, ErrFenced)}
		case update == nil:
			return shard.IndexLoaded{ID: id, Entities: ids}
		}
		return shard.IndexUpdated{ID: id}
	})
}

// pendingWork implements hosting.Hooks.
func (s *shell) pendingWork(id string, ready func()) {
	s.post(func() {
		if r := s.localEntities[id]; r != nil {
			s.indexWaiters[id] = append(s.indexWaiters[id], ready)
			s.enqueueInput(r, shard.PendingWork{Entity: id})
		}
		s.stepPending()
	})
}

// workSettled implements hosting.Hooks.
func (s *shell) workSettled(id string) {
	s.post(func() {
		if r := s.localEntities[id]; r != nil {
			s.enqueueInput(r, shard.WorkSettled{Entity: id})
		}
		s.stepPending()
	})
}

// indexed lets an entity continue that is in the index.
func (s *shell) indexed(id string) {
	waiters := s.indexWaiters[id]
	delete(s.indexWaiters, id)
	for _, ready := range waiters {
		ready()
	}
}

// shardList returns the store that lists the shards that get a home without a request.
func (s *shell) shardList() RememberStore {
	if s.rememberStore != nil {
		return s.rememberStore
	}
	return s.wakeStore
}

// callRememberStore loads the entities of a shard, or stores an update. The calls for a shard run one
// after the other, including the calls of instances of the shard that have ended.
func (s *shell) callRememberStore(store RememberStore, key storeCall, at shardcore.ShardRun, update *shard.Update, input func(ids []string, err error) shard.Input) {
	before, done := s.storeCalls[key], make(chan struct{})
	s.storeCalls[key] = done
	s.background.Go(func() {
		var ids []string
		call := func(ctx context.Context) error {
			if before != nil {
				select {
				case <-before:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return panics.Catch(func() (err error) {
				if update == nil {
					ids, err = store.Load(ctx, at.Shard)
					ids = s.ofShard(ids, at.Shard)
					return err
				}
				return store.Update(ctx, at.Shard, update.Started, update.Stopped)
			})
		}
		limit := s.opts.Tuning.SaveTimeout
		if update == nil {
			limit = s.opts.Tuning.LoadTimeout
		}
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		err := call(ctx)
		cancel()
		if before != nil {
			<-before // even if the previous call has timed out, the next call must wait for its return
		}
		close(done)
		in := input(ids, err)
		s.post(func() {
			if s.storeCalls[key] == done {
				delete(s.storeCalls, key)
			}
			s.step(shardcore.ShardInput{ShardRun: at, Input: in})
		})
	})
}

// ofShard returns the IDs that ShardOf maps to the shard. The other IDs were stored with another
// number of shards or another ShardOf. If this shard started these entities, they would run twice.
func (s *shell) ofShard(ids []string, n Shard) []string {
	kept := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		at, err := s.shardOf(id)
		return err != nil || at != n
	})
	if gone := len(ids) - len(kept); gone > 0 {
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "stored entities belong to other shards now: they start with their next command, or by Region.Wake",
			slog.Any("shard", n), slog.Int("entities", gone))
	}
	return kept
}

func remembered(update *shard.Update, ids []string, err error) shard.Input {
	switch {
	case update == nil && err == nil:
		return shard.Loaded{Entities: ids}
	case update == nil:
		return shard.LoadFailed{}
	case err == nil:
		return shard.Updated{ID: update.ID}
	}
	return shard.UpdateFailed{ID: update.ID}
}

func (s *shell) load(ctx context.Context, id uint64) (coordinator.Input, error) {
	l, err := s.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	state, fold, err := coordinator.Restore(l.State, l.Events, l.Term)
	if err != nil {
		return nil, fmt.Errorf("decode the state of the coordinator: %w", err)
	}
	in := coordinator.Loaded{ID: id, State: state, Rev: l.Rev}
	in.Repairs, in.Repaired = fold.Repairs()
	if list := s.shardList(); list != nil {
		if in.Remembered, err = list.Shards(ctx); err != nil {
			return nil, fmt.Errorf("load the remembered shards: %w", err)
		}
	}
	return in, nil
}
