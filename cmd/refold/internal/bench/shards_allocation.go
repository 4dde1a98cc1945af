// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

const (
	placeShards = 10_000
	placeNodes  = 3

	maxPlace, maxPlaceSaves = 5, 200
)

type placed struct {
	took         time.Duration
	saves, bytes float64
}

// shardPlace measures the time from the first message until all shards have a home, and the data
// that the coordinator stores for these homes: in a journal, or in replicated data if the row runs
// on NATS.
func shardPlace(ctx context.Context, b *run) ([]Result, error) {
	n := b.scaled(placeShards, 100)
	var took, saves, size []float64
	err := b.rounds(func() error {
		p, err := b.place(ctx, n)
		took, saves, size = append(took, p.took.Seconds()), append(saves, p.saves), append(size, p.bytes/max(1, p.saves))
		return err
	})
	store := "state in the journal"
	if b.scheme == "nats" {
		store = "replicated state"
	}
	settings := fmt.Sprintf("%d shards, %d nodes in one process, embedded NATS, %s, from the first message until one node has all homes", n, placeNodes, store)
	return []Result{
		atMost(median(took), "s to all homes", maxPlace, settings, ""),
		atMost(median(saves), "saves", maxPlaceSaves, "the same", fmt.Sprintf("%.0f bytes a save", median(size))),
	}, err
}

func (b *run) place(ctx context.Context, shards int) (p placed, err error) {
	entities := &run{settings: b.settings, scheme: b.scheme, dir: b.dir}
	if b.scheme == "nats" {
		entities.scheme = "inmem" // each node has its own journal, which is sufficient because entities store nothing
	}
	err = withNATS(func(carrier carriers) error { //nolint:contextcheck // the server lives until the end
		return entities.opened(ctx, func(s *database) error {
			var rts []*eventsourcing.Runtime
			defer func() {
				for _, rt := range rts {
					err = errors.Join(err, rt.Close(context.WithoutCancel(ctx)))
				}
			}()
			return withGroup(ctx, placeNodes, carrier, func(g *group) (err error) {
				count := &saves{states: b.scheme == "nats"}
				regions := make([]*sharding.Region[counter], len(*g))
				for i, r := range *g {
					var rt *eventsourcing.Runtime
					if rt, err = eventsourcing.Open(eventsourcing.Config{Store: store.Of(s.journal, nil)}); err != nil { //nolint:contextcheck // it ends with Close
						return err
					}
					rts = append(rts, rt)
					stores := countedStores{sharding.JournalStores{Journal: s.journal, Snapshots: s.snapshots}, count}
					if count.states {
						stores.CoordinatorStores = sharding.ReplicatedStores{Replicator: r}
					}
					if regions[i], err = sharding.Host(ctx, r.Node(), rt, sharded(r.Node().Self().Name), sharding.Options{
						State: stores, Shards: shards, MinMembers: placeNodes,
						ShardOf: func(id string) sharding.Shard {
							n, _ := strconv.ParseUint(id, 10, 31) // the ID is the number of the shard
							return sharding.Shard(n)
						},
					}); err != nil {
						return err
					}
				}
				return p.measure(ctx, regions, shards, count)
			})
		})
	})
	return p, err
}

// measure sends a message to each shard and waits until the sending node has all homes.
func (p *placed) measure(ctx context.Context, regions []*sharding.Region[counter], shards int, count *saves) error {
	for _, r := range regions {
		if err := until(ctx, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
			registered, err := r.CurrentRegions(ctx)
			if errors.Is(err, sharding.ErrNoCoordinator) {
				err = nil
			}
			return len(registered) == len(regions), err
		}); err != nil {
			return err
		}
	}
	from := regions[1] // the second node does not run the coordinator
	calls, bytes := count.calls.Load(), count.bytes.Load()
	began := time.Now()
	for i := range shards {
		if err := eventsourcing.Tell(ctx, from.Ref(strconv.Itoa(i)), read{}); err != nil {
			return err
		}
	}
	var next sharding.Shard
	told := began
	if err := until(ctx, time.Millisecond, func(ctx context.Context) (found bool, err error) {
		for ; int(next) < shards; next++ {
			if _, found, err = from.Home(ctx, next); err != nil {
				return false, err
			}
			if found {
				continue
			}
			if time.Since(told) < time.Second {
				return false, nil
			}
			// The home may have refused the message because it did not host the shard yet. Then the sender
			// has forgotten the home, and asks for it again with the next message.
			told = time.Now()
			return false, eventsourcing.Tell(ctx, from.Ref(strconv.Itoa(int(next))), read{})
		}
		return true, nil
	}); err != nil {
		return fmt.Errorf("the home of shard %d: %w", next, err)
	}
	p.took = time.Since(began)
	p.saves, p.bytes = float64(count.calls.Load()-calls), float64(count.bytes.Load()-bytes)
	return inParallel(shards, dataCallers, func(i int) error {
		_, err := eventsourcing.Ask(ctx, from.Ref(strconv.Itoa(i)), where{})
		return err
	})
}

// saves counts the saves of coordinators: events, or whole states.
type saves struct {
	states       bool
	calls, bytes atomic.Int64
}

type countedStores struct {
	sharding.CoordinatorStores

	count *saves
}

// OpenCoordinator implements sharding.CoordinatorStores.
func (c countedStores) OpenCoordinator(s sharding.Scope) (sharding.CoordinatorStore, error) {
	store, err := c.CoordinatorStores.OpenCoordinator(s)
	return countedStore{store, c.count}, err
}

type countedStore struct {
	sharding.CoordinatorStore

	count *saves
}

// Save implements sharding.CoordinatorStore.
func (c countedStore) Save(ctx context.Context, change sharding.Change) error {
	size := len(change.After)
	if !c.count.states {
		size = len(slices.Concat(change.Events...))
	}
	c.count.calls.Add(1)
	c.count.bytes.Add(int64(size))
	return c.CoordinatorStore.Save(ctx, change)
}
