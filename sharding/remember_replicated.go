// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/shardcore/register"
)

// entityKeys is how many keys a shard has, so that each value stays small. It never changes.
const entityKeys = 5

// replicatedEntities stores remembered entities in replicated data: five sets for each shard, and
// one set of shards.
type replicatedEntities struct {
	replicator *ddata.Replicator
	prefix     string
	all        ddata.Key[crdt.GSet[uint32]]
}

// OpenEntities implements RememberStores. The error matches ErrInvalid if the keys are not durable.
func (c ReplicatedStores) OpenEntities(s Scope) (RememberStore, error) {
	if err := c.validate(s); err != nil {
		return nil, err
	}
	prefix := "shard-" + s.Type + "|" + s.Role + "|"
	if s.Pending {
		prefix = "shard-|pending|" + s.Type + "|" + s.Role + "|" // no type begins with "|"
	}
	e := &replicatedEntities{replicator: c.Replicator, prefix: prefix, all: ddata.Key[crdt.GSet[uint32]](prefix + "all")}
	for _, key := range []string{string(e.all), string(e.key(0, 0))} {
		if !c.Replicator.Durable(key) {
			return nil, fmt.Errorf("%w: ReplicatedStores.Replicator: key %q is not durable: ddata.Config.Durable must include \"shard-*\"", ErrInvalid, key)
		}
	}
	return e, nil
}

func (e *replicatedEntities) key(shard Shard, index int) ddata.Key[crdt.ORSet[string]] {
	return ddata.Key[crdt.ORSet[string]](e.prefix + strconv.FormatUint(uint64(shard), 10) + "-" + strconv.Itoa(index))
}

// indexOf returns the index of the set for an entity. It never changes.
func indexOf(id string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // it never fails
	return int(h.Sum64() % entityKeys)
}

// Load implements RememberStore. It does not prevent another owner from writing.
func (e *replicatedEntities) Load(ctx context.Context, shard Shard) ([]string, error) {
	if err := checkShards([]Shard{shard}); err != nil {
		return nil, err
	}
	var parts [entityKeys][]string
	err := e.forEachKey(func(i int) error {
		set, err := readKey(ctx, e.replicator, e.key(shard, i), ddata.ReadMajority())
		if err == nil {
			parts[i], err = set.Elements()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sharding: load the entities of shard %d: %w", shard, err)
	}
	return slices.Concat(parts[:]...), nil
}

// Update implements RememberStore. If it fails, a part of the update may be stored.
func (e *replicatedEntities) Update(ctx context.Context, shard Shard, started, stopped []string) error {
	if err := errors.Join(checkShards([]Shard{shard}), checkIDs(started), checkIDs(stopped)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("sharding: update the entities of shard %d: %w", shard, context.Cause(ctx))
	}
	var start, stop [entityKeys][]string
	for _, id := range started {
		i := indexOf(id)
		start[i] = append(start[i], id)
	}
	for _, id := range stopped {
		i := indexOf(id)
		stop[i] = append(stop[i], id)
	}
	self := e.replicator.Self()
	err := e.forEachKey(func(i int) error {
		if len(start[i])+len(stop[i]) == 0 {
			return nil
		}
		return writeKey(ctx, e.replicator, e.key(shard, i), func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			var missing []string
			for _, id := range start[i] {
				if !s.Contains(id) {
					missing = append(missing, id)
				}
			}
			s, err := s.Add(self, missing...)
			if err != nil {
				return s, err
			}
			return s.Remove(self, stop[i]...)
		})
	})
	if err != nil {
		return fmt.Errorf("sharding: update the entities of shard %d: %w", shard, err)
	}
	return nil
}

// Shards implements RememberStore.
func (e *replicatedEntities) Shards(ctx context.Context) ([]Shard, error) {
	var shards []Shard
	set, err := readKey(ctx, e.replicator, e.all, ddata.ReadMajorityPlus(register.ReadPlus).PreferOldest())
	if err == nil {
		var all []uint32
		all, err = set.Elements()
		for _, s := range all {
			shards = append(shards, Shard(s))
		}
	}
	if err == nil {
		err = checkShards(shards)
	}
	if err != nil {
		return nil, fmt.Errorf("sharding: load the shards: %w", err)
	}
	slices.Sort(shards)
	return shards, nil
}

// AddShards implements RememberStore.
func (e *replicatedEntities) AddShards(ctx context.Context, shards []Shard) error {
	if err := checkShards(shards); err != nil {
		return err
	}
	err := writeKey(ctx, e.replicator, e.all, func(s crdt.GSet[uint32]) (crdt.GSet[uint32], error) {
		var missing []uint32
		for _, shard := range shards {
			if !s.Contains(uint32(shard)) {
				missing = append(missing, uint32(shard))
			}
		}
		return s.Add(missing...)
	})
	if err != nil {
		return fmt.Errorf("sharding: add %d shards: %w", len(shards), err)
	}
	return nil
}

// forEachKey calls f for all keys of a shard concurrently and returns the first error.
func (e *replicatedEntities) forEachKey(f func(i int) error) error {
	var errs [entityKeys]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return cmp.Or(errs[:]...)
}

// Close implements RememberStore.
func (e *replicatedEntities) Close() error { return nil }
