// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/refold-io/refold/internal/node/shards"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// remember puts the shards' questions to the store of remembered entities. The calls for a shard come one after the other, also
// those of runs that have ended.
func (s *site) remember(r *shards.Remember) {
	m, at, update := s.machine, r.Run, r.Update
	before, done := s.asked[at.Shard], make(chan struct{})
	s.asked[at.Shard] = done
	s.work.Go(func() {
		var ids []string
		call := func(ctx context.Context) error {
			if before != nil {
				select {
				case <-before:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return contained(func() (err error) {
				if update == nil {
					ids, err = s.memory.Load(ctx, at.Shard)
					ids = s.ofShard(ids, at.Shard)
					return err
				}
				return s.memory.Update(ctx, at.Shard, update.Started, update.Stopped)
			})
		}
		ctx, cancel := context.WithTimeout(s.base, s.opts.StateTimeout)
		err := call(ctx)
		cancel()
		if before != nil {
			<-before // it is not our turn any more, but who comes next must wait for it, too
		}
		close(done)
		s.inbox.add(item{do: func() {
			if s.asked[at.Shard] == done {
				delete(s.asked, at.Shard)
			}
			if s.machine == m {
				s.step(shards.Entities{Run: at, Input: remembered(update, ids, err)})
			}
		}})
		if err != nil && s.base.Err() == nil {
			s.log.LogAttrs(s.base, slog.LevelWarn, "the store of remembered entities has failed: the shard starts again",
				slog.Any("shard", at.Shard), slog.Bool("update", update != nil), slog.Any("error", err))
		}
	})
}

// ofShard returns the entities that belong to a shard. Others did when there was another number of shards, or another ShardOf: they would
// run twice.
func (s *site) ofShard(ids []string, n Shard) []string {
	kept := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		at, err := s.shardOf(id)
		return err != nil || at != n
	})
	if gone := len(ids) - len(kept); gone > 0 {
		s.log.LogAttrs(s.base, slog.LevelWarn, "remembered entities belong to other shards by now: they start with their next command",
			slog.Any("shard", n), slog.Int("entities", gone))
	}
	return kept
}

// remembered is what a shard is told.
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

// load reads the coordinator's state, and which shards are remembered.
func (s *site) load(ctx context.Context, id uint64) (coordinator.Input, error) {
	l, err := s.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	in := coordinator.Loaded{ID: id, State: l.State, Rev: l.Rev, Repairs: l.Repairs, Repaired: l.Repaired}
	if s.memory != nil {
		if in.Remembered, err = s.memory.Shards(ctx); err != nil {
			return nil, fmt.Errorf("the remembered shards: %w", err)
		}
	}
	return in, nil
}
