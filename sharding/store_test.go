// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/sharding"
)

type (
	shard = sharding.Shard
	event = coordinator.Event
)

func node(name string) identity.Node { return identity.Node{Name: name, UID: 7} }

func registered(name string) event {
	return event{Kind: coordinator.RegionRegistered, Node: node(name)}
}

func allocated(name string, shards ...shard) event {
	return event{Kind: coordinator.HomesAllocated, Node: node(name), Shards: shards}
}

func started(term uint64, name string) event {
	return event{Kind: coordinator.Started, Term: term, Node: node(name)}
}

// testCoordinator is a coordinator reduced to the calls that it makes to its store.
type testCoordinator struct {
	testing.TB

	store sharding.CoordinatorStore
	name  string
	state coordinator.State
	rev   uint64
}

func open(tb testing.TB, stores sharding.CoordinatorStores, name string) *testCoordinator {
	tb.Helper()
	s, err := stores.OpenCoordinator(sharding.Scope{Type: "account"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &testCoordinator{TB: tb, store: s, name: name}
}

// lead opens a store and begins a term, with region "r".
func lead(tb testing.TB, stores sharding.CoordinatorStores, name string) *testCoordinator {
	tb.Helper()
	b := open(tb, stores, name)
	b.lead()
	b.must(b.save(registered("r")))
	return b
}

func (b *testCoordinator) lead() {
	b.Helper()
	b.must(b.load())
	b.must(b.save(started(b.state.Term()+1, b.name)))
}

func (b *testCoordinator) load() error {
	state, _, rev, err := restored(b.Context(), b.store)
	if err == nil {
		b.state, b.rev = state, rev
	}
	return err
}

func (b *testCoordinator) save(events ...event) error {
	after, err := b.state.Apply(events...)
	if err != nil {
		b.Fatal(err)
	}
	err = b.store.Save(b.Context(), stored(&coordinator.Change{Term: after.Term(), Rev: b.rev, Events: events, After: after}))
	if err == nil {
		b.state, b.rev = after, b.rev+uint64(len(events))
	}
	return err
}

// restored loads and decodes the state of a store.
func restored(ctx context.Context, store sharding.CoordinatorStore) (coordinator.State, *coordinator.Fold, uint64, error) {
	l, err := store.Load(ctx)
	if err != nil {
		return coordinator.State{}, nil, 0, err
	}
	state, fold, err := coordinator.Restore(l.State, l.Events, l.Term)
	return state, fold, l.Rev, err
}

// stored returns the form of a change for a store.
func stored(c *coordinator.Change) sharding.Change {
	events, after := c.Encode()
	return sharding.Change{Term: c.Term, Rev: c.Rev, Claim: c.IsClaim(), Events: events, After: after}
}

func (b *testCoordinator) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// TestOpenInvalid checks that stores without a journal or replicator, or with invalid settings, are
// not opened.
func TestOpenInvalid(t *testing.T) {
	t.Parallel()
	scope := sharding.Scope{Type: "account"}
	for name, open := range map[string]func() error{
		"no journal":                func() error { _, err := sharding.JournalStores{}.OpenCoordinator(scope); return err },
		"no journal, entities":      func() error { _, err := sharding.JournalStores{}.OpenEntities(scope); return err },
		"no replicator":             func() error { _, err := sharding.ReplicatedStores{}.OpenCoordinator(scope); return err },
		"no replicator, entities":   func() error { _, err := sharding.ReplicatedStores{}.OpenEntities(scope); return err },
		"negative number of events": func() error { _, err := sharding.JournalStores{SnapshotEvery: -1}.OpenCoordinator(scope); return err },
	} {
		if err := open(); !errors.Is(err, sharding.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}
