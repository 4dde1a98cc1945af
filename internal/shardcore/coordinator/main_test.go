// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	shard = coordinator.Shard
	event = coordinator.Event
)

func node(name string) identity.Node { return identity.Node{Name: name, UID: 7} }

func registered(names ...string) []event {
	var events []event
	for _, name := range names {
		events = append(events, event{Kind: coordinator.RegionRegistered, Node: node(name)})
	}
	return events
}

func allocated(name string, shards ...shard) event {
	return event{Kind: coordinator.HomesAllocated, Node: node(name), Shards: shards}
}

func deallocated(shards ...shard) event {
	return event{Kind: coordinator.HomesDeallocated, Shards: shards}
}

func pinned(name string, shards ...shard) event {
	return event{Kind: coordinator.ShardsPinned, Node: identity.Node{Name: name}, Shards: shards}
}

func released(shards ...shard) event {
	return event{Kind: coordinator.ShardsReleased, Shards: shards}
}

func started(term uint64) event {
	return event{Kind: coordinator.Started, Term: term, Node: node("c")}
}

// apply returns a state after events.
func apply(t *testing.T, events ...event) coordinator.State {
	t.Helper()
	s, err := coordinator.State{}.Apply(events...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
