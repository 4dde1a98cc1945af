// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/wire"
)

// Manifests of the records of remembered entities and shards. They never change.
const (
	entitiesEvent = "refold.entities.event"
	entitiesState = "refold.entities.state"
	shardsEvent   = "refold.shards.event"
	shardsState   = "refold.shards.state"
)

const rememberWire = 1

// Kinds of an event of a shard.
const (
	entitiesStarted = 1
	entitiesStopped = 2
)

// maxIDsPerEvent is the maximum number of entities in one event.
const maxIDsPerEvent = 100

// maxRemembered is the maximum size of the remembered entities of one shard in bytes.
const maxRemembered = 64 << 20

var errRecord = errors.New("malformed record")

func appendIDs(dst []byte, ids []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = binary.AppendUvarint(dst, uint64(len(id)))
		dst = append(dst, id...)
	}
	return dst
}

// readIDs reads a list of IDs, which must fill the rest of the record.
func readIDs(r *wire.Reader, yield func(id string)) error {
	for range r.Count(maxRemembered, 2, "entities") {
		id := r.Bytes(int(r.Uint(MaxEntityID, "length of an ID")), "ID") //nolint:gosec // at most MaxEntityID
		if len(id) == 0 {
			r.Fail("ID is empty")
		}
		if r.Err() != nil {
			break
		}
		yield(string(id))
	}
	return r.End()
}

func newRecord(b []byte) *wire.Reader {
	return wire.NewReader(b, rememberWire, maxRemembered, errRecord)
}

func entityEvents(started, stopped []string) [][]byte {
	var events [][]byte
	add := func(kind byte, ids []string) {
		for part := range slices.Chunk(ids, maxIDsPerEvent) {
			events = append(events, appendIDs([]byte{rememberWire, kind}, part))
		}
	}
	add(entitiesStarted, started)
	add(entitiesStopped, stopped)
	return events
}

type entitySet map[string]struct{}

func (s entitySet) apply(event []byte) error {
	r := newRecord(event)
	switch kind := r.Byte("kind"); kind {
	case entitiesStarted:
		return readIDs(r, func(id string) { s[id] = struct{}{} })
	case entitiesStopped:
		return readIDs(r, func(id string) { delete(s, id) })
	default:
		r.Fail("unknown kind %d", kind)
		return r.Err()
	}
}

func (s entitySet) encode() []byte { return appendIDs([]byte{rememberWire}, s.sorted()) }

func (s entitySet) sorted() []string { return slices.Sorted(maps.Keys(s)) }

func decodeEntities(b []byte) (entitySet, error) {
	s := entitySet{}
	if b == nil {
		return s, nil
	}
	return s, readIDs(newRecord(b), func(id string) { s[id] = struct{}{} })
}

// encodeShards returns the encoding of an event and of a snapshot.
func encodeShards(shards []Shard) []byte { return wire.AppendList([]byte{rememberWire}, shards) }

func readShards(b []byte) ([]Shard, error) {
	r := newRecord(b)
	return wire.List[Shard](r, coordinator.MaxShards, "shards"), r.End()
}

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
		ctx, cancel := context.WithTimeout(s.ctx, s.opts.Tuning.StateTimeout)
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
