// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// remember calls the store of remembered entities. The calls for a shard run one after the other,
// including the calls of instances of the shard that have ended.
func (s *shell) remember(r *shardcore.RememberCall) {
	at, update := r.ShardRun, r.Update
	before, done := s.storeCalls[at.Shard], make(chan struct{})
	s.storeCalls[at.Shard] = done
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
					ids, err = s.rememberStore.Load(ctx, at.Shard)
					ids = s.ofShard(ids, at.Shard)
					return err
				}
				return s.rememberStore.Update(ctx, at.Shard, update.Started, update.Stopped)
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
		s.post(func() {
			if s.storeCalls[at.Shard] == done {
				delete(s.storeCalls, at.Shard)
			}
			s.step(shardcore.ShardInput{ShardRun: at, Input: remembered(update, ids, err)})
		})
		if err != nil && s.ctx.Err() == nil {
			s.log.LogAttrs(s.ctx, slog.LevelWarn, "store of remembered entities failed: restarting the shard",
				slog.Any("shard", at.Shard), slog.Bool("update", update != nil), slog.Any("error", err))
		}
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
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "remembered entities belong to other shards now: they start with their next command",
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
	if s.rememberStore != nil {
		if in.Remembered, err = s.rememberStore.Shards(ctx); err != nil {
			return nil, fmt.Errorf("load the remembered shards: %w", err)
		}
	}
	return in, nil
}
