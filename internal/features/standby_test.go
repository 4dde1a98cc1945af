// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// When the home of entities crashes, they start on nodes that hold their states already: they read no
// event, and have lost none.
func TestStandbys(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		testStandbys(t, db, tallyType(), eventsourcing.HostOptions{}, "tally|")
	})
}

// Standbys follow a type in a store of its own.
func TestStandbysOfStoreOfAType(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		shared, err := inmem.Open()
		if err != nil {
			t.Fatal(err)
		}
		testStandbys(t, shared, tallyType(), eventsourcing.HostOptions{Store: db}, "tally|")
		expectTallies(t, shared)
	})
}

// Standbys follow entities with persistence IDs of their own.
func TestStandbysOfAdoptedHistories(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		testStandbys(t, db, adoptedTallies(), eventsourcing.HostOptions{}, "old-")
	})
}

// testStandbys runs three nodes on a database, of which one crashes. Persistence IDs begin with a prefix.
func testStandbys(t *testing.T, db store.DB, typ eventsourcing.Type[tally, counted], host eventsourcing.HostOptions, prefix string) {
	t.Helper()
	const standbys = 2 // so that each node but the home is one
	f := startNodes(t, db, 1+standbys)
	ctx := within(t)
	var mu sync.Mutex
	recoveries := map[string]eventsourcing.RecoveryInfo{} // the first of each entity, on all nodes
	var regions []*sharding.Region[tally]
	for _, node := range f.nodes {
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: db, Logger: quiet(), Observer: eventsourcing.Observer{
			Recovery: func(info eventsourcing.RecoveryInfo) {
				mu.Lock()
				defer mu.Unlock()
				if _, again := recoveries[info.PersistenceID]; !again {
					recoveries[info.PersistenceID] = info
				}
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeRuntime(t, rt) })
		t.Cleanup(func() { f.crash(node) })
		region, err := sharding.Host(ctx, node, rt, typ, sharding.Options{Shards: 30, Standbys: standbys, Host: host})
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, region)
	}
	const entities, events = 30, 5
	for n := range events {
		for id := range entities {
			if _, err := eventsourcing.Ask(ctx, regions[n%3].Ref(fmt.Sprint(id)), count{By: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id := range entities { // until each standby has the last event, because any of them may become the home
		for held(regions, fmt.Sprint(id), events) < standbys {
			select {
			case <-ctx.Done():
				t.Fatalf("a standby lacks events of the entity %d", id)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	home := map[string]bool{} // entities of the node that crashes
	state, err := regions[2].State(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range state.Shards {
		for _, id := range s.Entities {
			home[id] = true
		}
	}
	mu.Lock()
	clear(recoveries)
	mu.Unlock()
	f.crash(f.nodes[2])
	for id := range home {
		if n, err := askAgain(ctx, regions[0].Ref(id), count{}); n != events || err != nil {
			t.Errorf("entity %s has the count %d, %v, want %d", id, n, err, events)
		}
		mu.Lock()
		if info := recoveries[prefix+id]; !info.Prepared || info.Events != 0 {
			t.Errorf("the recovery of entity %s was %+v, want one from a standby without events", id, info)
		}
		mu.Unlock()
	}
	if len(home) == 0 {
		t.Error("the crashed node hosted no entity")
	}
}

// held returns how many nodes hold the state of an entity as a standby, with a number of events.
func held(regions []*sharding.Region[tally], id string, events int) (nodes int) {
	for _, r := range regions {
		r.ReadStandby(id, time.Minute, func(state *tally) {
			if state.N == events {
				nodes++
			}
		})
	}
	return nodes
}
