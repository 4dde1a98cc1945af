// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/refold-io/refold/internal/shardcore/stored"
	"github.com/refold-io/refold/journal"
)

// maxTries is the maximum number of attempts to append when other writers conflict.
const maxTries = 5

// maxEventsPerWrite is the maximum number of events in one append. A larger update takes several
// appends.
const maxEventsPerWrite = 500

// journalEntities stores remembered entities in a journal: one history for each shard, and one for
// the list of shards.
//
// Load appends a fence to the history of the shard and keeps its sequence number. The next append
// of a previous owner then conflicts, because the fence has taken its sequence number.
type journalEntities struct {
	open   func(shard Shard) *ledger
	shards *ledger

	mu    sync.Mutex
	owned map[Shard]*ownedShard
	list  head
	known map[Shard]bool // shards that are known to be in the list
}

// OpenEntities implements RememberStores.
func (c JournalStores) OpenEntities(s Scope) (RememberStore, error) {
	open, err := c.ledgers(s)
	if err != nil {
		return nil, err
	}
	entities, shards := "entities", "shards"
	if s.Pending {
		entities, shards = "pending", "pendingshards"
	}
	return &journalEntities{
		open: func(shard Shard) *ledger {
			return open(entities, strconv.FormatUint(uint64(shard), 10), stored.EntitiesEvent, stored.EntitiesState, stored.MaxBytes)
		},
		shards: open(shards, "", stored.ShardsEvent, stored.ShardsState, stored.MaxBytes),
		owned:  map[Shard]*ownedShard{}, known: map[Shard]bool{},
	}, nil
}

type ownedShard struct {
	head head
	busy bool // an update is being stored, or has failed
}

// Load implements RememberStore.
func (j *journalEntities) Load(ctx context.Context, shard Shard) ([]string, error) {
	if err := checkShards([]Shard{shard}); err != nil {
		return nil, err
	}
	l := j.open(shard)
	var err error
	for range maxTries {
		var set stored.Entities
		var h head
		if set, h, err = readEntities(ctx, l); err != nil {
			return nil, err
		}
		after, failed := l.write(ctx, h, []journal.Event{{SequenceNr: h.rev + 1, Time: h.next()}})
		if failed == nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.owned[shard] = &ownedShard{head: after}
			return set.Sorted(), nil
		}
		if err = failed; !errors.Is(err, journal.ErrConflict) {
			break
		}
	}
	return nil, fmt.Errorf("sharding: take over %q: %w", l.id, err)
}

func readEntities(ctx context.Context, l *ledger) (set stored.Entities, h head, err error) {
	h, err = l.read(ctx, func(b []byte) (failed error) {
		if b == nil {
			set = stored.Entities{}
			return nil
		}
		set, failed = stored.DecodeEntities(b)
		return failed
	}, func(b []byte) error { return set.Apply(b) })
	return set, h, err
}

// Update implements RememberStore. If an update of more than 50,000 entities fails, some of its
// entities may be stored.
func (j *journalEntities) Update(ctx context.Context, shard Shard, started, stopped []string) error {
	if err := errors.Join(checkShards([]Shard{shard}), checkIDs(started), checkIDs(stopped)); err != nil {
		return err
	}
	o := j.take(shard)
	if o == nil {
		return fmt.Errorf("%w: shard %d is not loaded, or an earlier update failed", ErrConflict, shard)
	}
	l, h := j.open(shard), o.head
	for part := range slices.Chunk(stored.EntityEvents(started, stopped), maxEventsPerWrite) {
		var err error
		if h, err = l.append(ctx, h, part); errors.Is(err, journal.ErrConflict) {
			return fmt.Errorf("%w: shard %d has another owner: %w", ErrFenced, shard, err)
		}
		if err != nil {
			return fmt.Errorf("sharding: append to %q after %d: %w", l.id, h.rev, err)
		}
	}
	h = l.snapshotLater(ctx, h, func(ctx context.Context) (head, []byte, error) {
		set, at, err := readEntities(ctx, l)
		return at, set.Encode(), err
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	o.head, o.busy = h, false
	return nil
}

// take returns a shard for an update. The shard stays busy until the update is known to be stored.
func (j *journalEntities) take(shard Shard) *ownedShard {
	j.mu.Lock()
	defer j.mu.Unlock()
	o := j.owned[shard]
	if o == nil || o.busy {
		return nil
	}
	o.busy = true
	return o
}

// Shards implements RememberStore.
func (j *journalEntities) Shards(ctx context.Context) ([]Shard, error) {
	shards, _, err := j.readShards(ctx)
	return shards, err
}

func (j *journalEntities) readShards(ctx context.Context) ([]Shard, head, error) {
	var set map[Shard]bool
	add := func(b []byte) error {
		shards, err := stored.DecodeShards(b)
		for _, s := range shards {
			set[s] = true
		}
		return err
	}
	h, err := j.shards.read(ctx, func(b []byte) error {
		set = map[Shard]bool{}
		if b == nil {
			return nil
		}
		return add(b)
	}, add)
	if err != nil {
		return nil, head{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.rev > j.list.rev {
		j.list = h
	}
	maps.Copy(j.known, set)
	return slices.Sorted(maps.Keys(set)), h, nil
}

// AddShards implements RememberStore. Concurrent additions of several coordinators do not conflict.
func (j *journalEntities) AddShards(ctx context.Context, shards []Shard) error {
	if err := checkShards(shards); err != nil {
		return err
	}
	var err error
	for range maxTries {
		j.mu.Lock()
		h := j.list
		missing := slices.DeleteFunc(slices.Clone(shards), func(s Shard) bool { return j.known[s] })
		j.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		var after head
		if after, err = j.shards.append(ctx, h, [][]byte{stored.EncodeShards(missing)}); err == nil {
			j.added(ctx, after, missing)
			return nil
		}
		if !errors.Is(err, journal.ErrConflict) {
			break
		}
		if _, _, err = j.readShards(ctx); err != nil {
			return err
		}
		err = fmt.Errorf("%w: too many concurrent additions", ErrConflict)
	}
	return fmt.Errorf("sharding: append to %q: %w", j.shards.id, err)
}

func (j *journalEntities) added(ctx context.Context, after head, shards []Shard) {
	j.mu.Lock()
	defer j.mu.Unlock()
	after.snapshot = j.list.snapshot
	after = j.shards.snapshotLater(ctx, after, func(ctx context.Context) (head, []byte, error) {
		all, h, err := j.readShards(ctx)
		return h, stored.EncodeShards(all), err
	})
	if after.rev > j.list.rev {
		j.list = after
	}
	for _, s := range shards {
		j.known[s] = true
	}
}

// Close implements RememberStore.
func (j *journalEntities) Close() error {
	j.shards.background.close()
	return nil
}
