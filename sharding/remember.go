// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
)

// Manifests of the records of remembered entities and shards. They never change.
const (
	entitiesEvent = "refold.entities.event"
	entitiesState = "refold.entities.state"
	shardsEvent   = "refold.shards.event"
	shardsState   = "refold.shards.state"
)

// rememberWire is the version byte of these encodings.
const rememberWire = 1

// Kinds of an event of a shard.
const (
	entitiesStarted = 1
	entitiesStopped = 2
)

// maxIDsPerEvent is how many entities one event contains at most.
const maxIDsPerEvent = 100

// maxRemembered is the maximum size of the remembered entities of one shard in bytes.
const maxRemembered = 64 << 20

// errRecord is matched by the errors about malformed records.
var errRecord = errors.New("malformed record")

func appendIDs(dst []byte, ids []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = binary.AppendUvarint(dst, uint64(len(id)))
		dst = append(dst, id...)
	}
	return dst
}

// readIDs decodes a list of IDs, which must be all of b.
func readIDs(b []byte, yield func(id string)) error {
	n, b, err := readUint(b)
	if err != nil || n > uint64(len(b))/2 {
		return fmt.Errorf("%w: %d entities in %d bytes", errRecord, n, len(b))
	}
	for range n {
		var size uint64
		if size, b, err = readUint(b); err != nil || size == 0 || size > MaxEntityID || size > uint64(len(b)) {
			return fmt.Errorf("%w: entity ID of %d bytes", errRecord, size)
		}
		yield(string(b[:size]))
		b = b[size:]
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d trailing bytes", errRecord, len(b))
	}
	return nil
}

func readUint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errRecord
	}
	return v, b[n:], nil
}

func readWire(b []byte, size int) ([]byte, error) {
	if len(b) < size || b[0] != rememberWire {
		return nil, fmt.Errorf("%w: %d bytes with an unknown version", errRecord, len(b))
	}
	return b[1:], nil
}

// entityEvents encodes an update.
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

// entitySet is the entities of a shard.
type entitySet map[string]struct{}

func (s entitySet) apply(event []byte) error {
	b, err := readWire(event, 2)
	if err != nil {
		return err
	}
	switch kind := b[0]; kind {
	case entitiesStarted:
		return readIDs(b[1:], func(id string) { s[id] = struct{}{} })
	case entitiesStopped:
		return readIDs(b[1:], func(id string) { delete(s, id) })
	default:
		return fmt.Errorf("%w: unknown kind %d", errRecord, kind)
	}
}

// encode returns the encoding of a snapshot.
func (s entitySet) encode() []byte { return appendIDs([]byte{rememberWire}, s.sorted()) }

func (s entitySet) sorted() []string {
	ids := make([]string, 0, len(s))
	for id := range s {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func decodeEntities(b []byte) (entitySet, error) {
	s := entitySet{}
	if b == nil {
		return s, nil
	}
	b, err := readWire(b, 2)
	if err != nil {
		return nil, err
	}
	return s, readIDs(b, func(id string) { s[id] = struct{}{} })
}

// encodeShards returns the encoding of an event and of a snapshot.
func encodeShards(shards []Shard) []byte {
	b := binary.AppendUvarint([]byte{rememberWire}, uint64(len(shards)))
	for _, s := range shards {
		b = binary.AppendUvarint(b, uint64(s))
	}
	return b
}

func readShards(b []byte, yield func(Shard)) error {
	b, err := readWire(b, 2)
	if err != nil {
		return err
	}
	n, b, err := readUint(b)
	if err != nil || n > uint64(len(b)) || n > coordinator.MaxShards {
		return fmt.Errorf("%w: %d shards in %d bytes", errRecord, n, len(b))
	}
	for range n {
		var s uint64
		if s, b, err = readUint(b); err != nil || s >= coordinator.MaxShards {
			return fmt.Errorf("%w: shard %d", errRecord, s)
		}
		yield(Shard(s))
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d trailing bytes", errRecord, len(b))
	}
	return nil
}

// remember calls the store of remembered entities. The calls for a shard run one after the other,
// also those of ended instances of the shard.
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
			<-before // the call has timed out, but the next one must wait for its predecessor, too
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

// ofShard returns the entities that belong to a shard. The others belonged to it with another
// number of shards or another ShardOf; they would run twice.
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

// remembered returns the input for the shard.
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

// load loads the state of the coordinator and the remembered shards.
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
