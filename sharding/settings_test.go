// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/sharding"
)

// TestProxyOnly checks that a node with ProxyOnly hosts no entities, although it runs the
// coordinator and hosts the type. It sends commands and starts entities.
func TestProxyOnly(t *testing.T) {
	t.Parallel()
	for _, replicated := range []bool{false, true} {
		in(t, func(w *world) {
			w.replicated, w.options.Shards = replicated, 10
			w.options.ProxyOnly = true
			a := w.start("a")
			w.up(a)
			w.options.ProxyOnly = false
			b := w.start("b")
			w.up(a, b)
			if where := w.spread([]*host{a, b}, 10, 0); where["b"] != 20 {
				w.Errorf("replies by node: %v, want all of b", where)
			}
			w.must(a.region.Start(w.Context(), "started"))
			w.wantRunning(11, b)
			s, err := a.region.State(w.Context())
			w.must(err)
			if s.Coordinator != a.Self() || len(s.Shards) != 0 {
				w.Errorf("the coordinator runs on %v and a hosts %v, want a and no shards", s.Coordinator, s.Shards)
			}
			w.must(a.Shutdown(w.Context())) // b takes over the coordinator
			w.up(b)
			w.spread([]*host{b}, 20, 1)
		})
	}
}

// TestStartFromProxy checks that Region.Start of a node without the role starts the entity on the
// node that hosts its shard, without a command.
func TestStartFromProxy(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards = "library", 10
		a, b := w.start("a", "library"), w.start("b")
		w.up(a, b)
		w.must(b.region.Start(w.Context(), "x"))
		w.wantRunning(1, a)
		w.must(b.region.Start(w.Context(), "x"))
		w.wantRunning(1, a)
		w.wrote(b, "x", "a", 0)
	})
}

// TestMinMembersOfTheCluster checks that shards are allocated only when the cluster's minimum of
// nodes host the type.
func TestMinMembersOfTheCluster(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"", "library"} {
		in(t, func(w *world) {
			w.options.Role, w.settings.MinMembers = role, 2
			if role != "" {
				w.settings.MinMembers, w.settings.MinMembersOfRole = 1, map[string]int{role: 2}
			}
			a, b := w.start("a", "library"), w.join("b", "library")
			w.up(a, b)
			soon, cancel := context.WithTimeout(w.Context(), time.Minute)
			defer cancel()
			if err := a.region.Start(soon, "x"); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("role %q: Start while one of two nodes hosts the type: %v, want DeadlineExceeded", role, err)
			}
			var err error
			b.region, err = sharding.Host(w.Context(), b.Node, b.rt, diaries("b"), w.opts(b))
			w.must(err)
			w.must(a.region.Start(w.Context(), "x"))
		})
	}
}

// TestBackoffsOfEntitiesAndShards checks that a shard whose store failed starts again after
// ShardBackoff, and an entity that ended after RestartBackoff.
func TestBackoffsOfEntitiesAndShards(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		store := &faultyStore{RememberStores: sharding.JournalStores{Journal: w.journal}, fails: map[string]int{}}
		w.options.Shards, w.options.Remember = 1, store
		w.options.Tuning.ShardBackoff, w.options.Tuning.RestartBackoff = 2*time.Second, 20*time.Second
		a := w.cluster("a")[0]
		w.must(a.region.Start(w.Context(), "y"))
		store.mu.Lock()
		store.fails["update"] = 1
		store.mu.Unlock()
		if err := a.region.Start(w.Context(), "x"); err == nil {
			w.Error("an entity was started although it could not be remembered")
		}
		synctest.Wait() // the other entity of the shard stops meanwhile
		w.wantRunning(0, a)
		w.sleep(2 * time.Second)
		w.wantRunning(1, a)
		_, err := ask(w, a, "y", perish{})
		w.must(err)
		w.sleep(19 * time.Second)
		w.wantRunning(0, a)
		w.sleep(time.Second)
		w.wantRunning(1, a)
	})
}

// timedStores record the time limits of the calls of their stores.
type timedStores struct {
	sharding.JournalStores

	mu     sync.Mutex
	limits map[string]time.Duration
}

type (
	timedCoordinator struct {
		sharding.CoordinatorStore
		by *timedStores
	}
	timedEntities struct {
		sharding.RememberStore
		by *timedStores
	}
)

func (s *timedStores) called(ctx context.Context, call string) {
	until, _ := ctx.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits[call] = time.Until(until)
}

func (s *timedStores) OpenCoordinator(scope sharding.Scope) (sharding.CoordinatorStore, error) {
	store, err := s.JournalStores.OpenCoordinator(scope)
	return timedCoordinator{store, s}, err
}

func (s *timedStores) OpenEntities(scope sharding.Scope) (sharding.RememberStore, error) {
	store, err := s.JournalStores.OpenEntities(scope)
	return timedEntities{store, s}, err
}

func (s timedCoordinator) Load(ctx context.Context) (sharding.Loaded, error) {
	s.by.called(ctx, "load the state")
	return s.CoordinatorStore.Load(ctx)
}

func (s timedCoordinator) Save(ctx context.Context, c sharding.Change) error {
	s.by.called(ctx, "save the state")
	return s.CoordinatorStore.Save(ctx, c)
}

func (s timedEntities) Load(ctx context.Context, shard sharding.Shard) ([]string, error) {
	s.by.called(ctx, "load entities")
	return s.RememberStore.Load(ctx, shard)
}

func (s timedEntities) Update(ctx context.Context, shard sharding.Shard, started, stopped []string) error {
	s.by.called(ctx, "save entities")
	return s.RememberStore.Update(ctx, shard, started, stopped)
}

func (s timedEntities) AddShards(ctx context.Context, shards []sharding.Shard) error {
	s.by.called(ctx, "save shards")
	return s.RememberStore.AddShards(ctx, shards)
}

// TestTimeoutsOfStores checks that calls of the stores have LoadTimeout or SaveTimeout.
func TestTimeoutsOfStores(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		stores := &timedStores{JournalStores: sharding.JournalStores{Journal: w.journal}, limits: map[string]time.Duration{}}
		w.options.Shards, w.options.Tuning.LoadTimeout, w.options.Tuning.SaveTimeout = 1, 7*time.Second, 3*time.Second
		a := w.join("a")
		opts := w.opts(a)
		opts.State, opts.Remember = stores, stores
		var err error
		a.region, err = sharding.Host(w.Context(), a.Node, a.rt, diaries("a"), opts)
		w.must(err)
		w.must(a.region.Start(w.Context(), "x"))
		synctest.Wait()
		stores.mu.Lock()
		defer stores.mu.Unlock()
		want := map[string]time.Duration{
			"load the state": 7 * time.Second, "load entities": 7 * time.Second, "save the state": 3 * time.Second, "save entities": 3 * time.Second, "save shards": 3 * time.Second,
		}
		if fmt.Sprint(stores.limits) != fmt.Sprint(want) {
			w.Errorf("time limits: %v, want %v", stores.limits, want)
		}
	})
}
