// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/register"
)

// ReplicatedStores are stores in replicated data. The state of coordinators is lost when all nodes
// stop; the list of shards survives only if entities are remembered.
//
// A shard has about 50,000 remembered entities at most. Their keys "shard-*" must be durable: see
// ddata.Config.Durable. A replaced owner of a shard is not prevented from writing.
type ReplicatedStores struct {
	// Replicator holds the data. All nodes that may host the entity type need a replicator of the
	// same name. Required.
	Replicator *ddata.Replicator
}

var (
	_ CoordinatorStores = ReplicatedStores{}
	_ RememberStores    = ReplicatedStores{}
)

func (c ReplicatedStores) validate(s Scope) error {
	err := s.validate()
	if c.Replicator == nil {
		err = errors.Join(fmt.Errorf("%w: ReplicatedStores.Replicator is required", ErrInvalid), err)
	}
	return err
}

// regionBytes is the room for the names of regions and proxies in a state: several hundred names of
// 30 bytes.
const regionBytes = 16 << 10

// OpenCoordinator implements CoordinatorStores. The error matches ErrInvalid if the state of
// Scope.Shards shards may exceed the entry size of the replicator.
func (c ReplicatedStores) OpenCoordinator(s Scope) (CoordinatorStore, error) {
	if err := c.validate(s); err != nil {
		return nil, err
	}
	if need, most := coordinator.StateBytes(s.Shards)+regionBytes, c.Replicator.MaxEntry(); need > most {
		return nil, fmt.Errorf("%w: Options.Shards is %d: their state may take %d bytes, and ddata.Config.MaxEntry of replicator %q is %d", ErrInvalid, s.Shards, need, c.Replicator.Name(), most)
	}
	key := "sharding|" + s.Type + "|" + s.Role + "|"
	return &replicatedCoordinator{register.New(replicatedKeys{
		Replicator: c.Replicator,
		claims:     ddata.Key[crdt.ORSet[string]](key + "terms"),
		state:      ddata.Key[crdt.LWWRegister[[]byte]](key + "state"),
	}, rand.Text())}, nil
}

// replicatedCoordinator stores the state of a coordinator in replicated data.
type replicatedCoordinator struct{ register *register.Store }

// Load implements CoordinatorStore.
func (r *replicatedCoordinator) Load(ctx context.Context) (Loaded, error) {
	state, rev, claimed, err := r.register.Load(ctx)
	if err != nil {
		return Loaded{}, err
	}
	return Loaded{Term: claimed, Rev: rev, State: coordinator.AppendState(nil, state)}, nil
}

// Save implements CoordinatorStore.
func (r *replicatedCoordinator) Save(ctx context.Context, c Change) error {
	if err := checkChange(&c); err != nil {
		return err
	}
	change, err := coordinator.DecodeChange(c.Term, c.Rev, c.Events, c.After)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return r.register.Save(ctx, change)
}

// Close implements CoordinatorStore.
func (r *replicatedCoordinator) Close() error { return nil }

// replicatedKeys are the keys that hold the claims and the state of a coordinator.
type replicatedKeys struct {
	*ddata.Replicator

	claims ddata.Key[crdt.ORSet[string]]
	state  ddata.Key[crdt.LWWRegister[[]byte]]
}

// ReadClaims implements register.Data.
func (k replicatedKeys) ReadClaims(ctx context.Context) (crdt.ORSet[string], error) {
	return readKey(ctx, k.Replicator, k.claims, ddata.ReadMajority().PreferOldest())
}

// ChangeClaims implements register.Data.
func (k replicatedKeys) ChangeClaims(ctx context.Context, modify func(crdt.ORSet[string]) (crdt.ORSet[string], error)) error {
	return writeKey(ctx, k.Replicator, k.claims, modify)
}

// ReadState implements register.Data.
func (k replicatedKeys) ReadState(ctx context.Context, more, repair bool) (crdt.LWWRegister[[]byte], error) {
	level := ddata.ReadMajority().PreferOldest()
	if more {
		level = ddata.ReadMajorityPlus(register.ReadPlus).PreferOldest()
	}
	if repair {
		level = level.RepairPeers()
	}
	return readKey(ctx, k.Replicator, k.state, level)
}

// ChangeState implements register.Data.
func (k replicatedKeys) ChangeState(ctx context.Context, modify func(crdt.LWWRegister[[]byte]) (crdt.LWWRegister[[]byte], error)) error {
	return writeKey(ctx, k.Replicator, k.state, modify)
}

const (
	// maxRetries is how often a read or write is tried until enough replicas take part. Each
	// attempt gets an equal share of the time. After a fifth of its share, an attempt includes
	// further nodes, so that an unresponsive replica costs little time.
	maxRetries = 5
	// retryTimeout limits all attempts together.
	retryTimeout = 5 * time.Second
)

// retry calls f until enough replicas take part, or the time is up. The function must be
// repeatable.
func retry(ctx context.Context, f func(ctx context.Context) error) error {
	left := retryTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	var err error
	for range maxRetries {
		once, cancel := context.WithTimeout(ctx, left/maxRetries)
		err = f(once)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, ddata.ErrQuorum) && !errors.Is(err, ddata.ErrBusy) && !errors.Is(err, ddata.ErrCanceled) {
			return err
		}
	}
	return err
}

// readKey reads a key. A missing key is the empty value.
func readKey[T crdt.Data[T]](ctx context.Context, r *ddata.Replicator, key ddata.Key[T], level ddata.ReadLevel) (v T, err error) {
	err = retry(ctx, func(ctx context.Context) (err error) {
		v, err = ddata.Get(ctx, r, key, level)
		if errors.Is(err, ddata.ErrNotFound) {
			var none T
			v, err = none, nil
		}
		return err
	})
	return v, err
}

// writeKey updates a key. Repeated calls of modify must have the effect of a single call.
func writeKey[T crdt.Data[T]](ctx context.Context, r *ddata.Replicator, key ddata.Key[T], modify func(T) (T, error)) error {
	return retry(ctx, func(ctx context.Context) error {
		_, err := ddata.Update(ctx, r, key, ddata.WriteMajority().PreferOldest(), modify)
		return err
	})
}
