// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
)

// TestShardOfThatChanges: what it says of an entity must not change; if it does all the same, shards still move.
func TestShardOfThatChanges(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 6
		var says atomic.Uint32
		w.options.ShardOf = func(id string) sharding.Shard {
			if id == "x" {
				return sharding.Shard(says.Load())
			}
			return 0
		}
		a := w.start("a")
		b := w.start("b")
		w.up(a, b)
		w.must(b.region.Drain(w.Context()))
		for n := range 3 {
			says.Store(uint32(n))
			if _, err := ask(w, a, "x", write{By: "a", N: n}); err != nil {
				w.Error(err)
			}
		}
		w.must(b.region.Undrain(w.Context()))
		soon, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.must(a.region.Drain(soon))
		w.wrote(b, "x", "a", 3)
		if n := a.rt.Resident()["diary"]; n != 0 {
			w.Errorf("%d are in memory on a", n)
		}
	})
}

// TestRememberedEntitiesOfOtherShards: when the number of shards was changed, entities that are remembered in shards that are not theirs any more
// don't start there, beside those that their commands start.
func TestRememberedEntitiesOfOtherShards(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		w.remembers = true
		w.spread(w.cluster("a"), 20, 0)
		w.halt()
		w.options.Shards = 7
		a := w.cluster("a")[0]
		w.sleep(time.Minute)
		left := len(w.running(a))
		if left == 20 {
			w.Error("all run")
		}
		if !strings.Contains(w.log.String(), "remembered entities belong to other shards by now") {
			w.Error("nobody says so")
		}
		w.spread([]*host{a}, 20, 1)
		w.wantRunning(20, a)
		s, err := a.region.State(w.Context())
		w.must(err)
		for _, shard := range s.Shards {
			for _, id := range shard.Entities {
				if n, err := a.region.ShardOf(id); err != nil || n != shard.Shard {
					w.Errorf("%s runs in shard %d, it belongs to %d: %v", id, shard.Shard, n, err)
				}
			}
		}
	})
}

// closing are stores whose Close panics.
type closing struct{ sharding.CoordinatorStores }

func (c closing) OpenCoordinator(s sharding.Scope) (sharding.CoordinatorStore, error) {
	store, err := c.CoordinatorStores.OpenCoordinator(s)
	return closingStore{store}, err
}

type closingStore struct{ sharding.CoordinatorStore }

func (closingStore) Close() error { panic("the shelf has fallen") }

// TestAStoreThatCantBeClosed: the node ends all the same, and the log says so.
func TestAStoreThatCantBeClosed(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a")
		o := w.opts(a)
		o.State = closing{o.State}
		var err error
		a.region, err = sharding.Start(w.Context(), a.Node, diaries("a"), o)
		w.must(err)
		w.up(a)
		w.must(a.Shutdown(w.Context()))
		<-a.region.Done()
		if !strings.Contains(w.log.String(), "a store could not be closed") {
			w.Error("nobody says so")
		}
	})
}

// deaf is a strategy that goes on when its time is over, until it is told to end.
type deaf struct {
	sharding.Strategy

	end chan struct{}
}

func (d deaf) Allocate(ctx context.Context, view allocation.View, request allocation.Request) (identity.Node, error) {
	<-d.end
	return d.Strategy.Allocate(ctx, view, request)
}

// TestAStrategyThatGoesOn: the log says why no shard gets a home, and when it ends at last they do.
func TestAStrategyThatGoesOn(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		end := make(chan struct{})
		w.options.Strategy = deaf{sharding.By(allocation.LeastShards{}), end}
		a := w.cluster("a")[0]
		soon, cancel := context.WithTimeout(w.Context(), 9*time.Second)
		defer cancel()
		if _, err := eventsourcing.Ask(soon, a.region.Ref("x"), write{By: "a"}); !eventsourcing.NotDone(err) {
			w.Error(err)
		}
		if s := w.log.String(); strings.Contains(s, "does not return") {
			w.Error("it is late too soon")
		}
		w.sleep(5 * time.Second)
		if s := w.log.String(); strings.Count(s, "call=allocate error=\"it does not return, though its time is over") != 1 {
			w.Error("nobody says so")
		}
		close(end)
		if _, err := ask(w, a, "x", write{By: "a"}); err != nil {
			w.Error(err)
		}
	})
}
