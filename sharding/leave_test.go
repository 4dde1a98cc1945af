// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
)

// asks starts an ask and returns when the command waits in the region. The channel receives the
// error at the end of the ask.
func (w *world) asks(ctx context.Context, h *host, id string) <-chan error {
	w.Helper()
	over := make(chan error, 1)
	go func() {
		_, err := eventsourcing.Ask(ctx, h.region.Ref(id), write{})
		over <- err
	}()
	w.sleep(time.Millisecond)
	if s, err := h.region.State(w.Context()); err != nil || s.Waiting != 1 { //nolint:contextcheck // ctx is that of the command
		w.Errorf("%d commands wait in the region, want 1: %v", s.Waiting, err)
	}
	return over
}

// leaves shuts a node down and checks that its region was not stopped by force.
func (w *world) leaves(h *host) {
	w.Helper()
	begun := time.Now()
	w.must(h.Shutdown(w.Context()))
	w.Logf("%v left after %v", h.Self(), time.Since(begun))
	w.sleep(time.Second)
	if strings.Contains(w.log.String(), "by force") {
		w.Error("the region was stopped by force")
	}
}

// TestLeavingRegionDropsAbandonedCommands checks that a leaving region does not wait for commands
// whose callers no longer wait.
func TestLeavingRegionDropsAbandonedCommands(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		var dropped []sharding.DroppedInfo
		w.options.Observer.Dropped = func(d sharding.DroppedInfo) { dropped = append(dropped, d) }
		begun := time.Now()
		a := w.cluster("a")[0]
		w.must(a.region.Drain(w.Context()))              // no shard has a home
		w.sleep(time.Until(begun.Add(17 * time.Second))) // the leave begins before the next sweep at 30 s
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		over := w.asks(ctx, a, "d0")
		w.leaves(a)
		err := <-over
		w.wantErr(err, context.DeadlineExceeded, false)
		if len(dropped) != 1 || !errors.Is(dropped[0].Err, sharding.ErrAbandoned) || !dropped[0].Asked || dropped[0].Entity != "d0" {
			w.Errorf("Dropped was called with %+v, want ErrAbandoned of d0", dropped)
		}
	})
}

// TestUnregisteredRegionLeaves checks that a region that has never registered leaves at once.
func TestUnregisteredRegionLeaves(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role = "library"
		a := w.start("a") // a proxy, and no node has the role
		w.up(a)
		over := w.asks(w.Context(), a, "d0")
		w.leaves(a)
		w.wantErr(<-over, sharding.ErrStopped, false)
	})
}

// TestAbandonedCommandsFreeTheBuffer checks that commands whose callers no longer wait are removed
// from the buffers.
func TestAbandonedCommandsFreeTheBuffer(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role = "library"
		a := w.start("a")
		w.up(a)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.wantErr(<-w.asks(ctx, a, "d0"), context.DeadlineExceeded, false)
		w.sleep(30 * time.Second)
		if s, err := a.region.State(w.Context()); err != nil || s.Waiting != 0 || s.Dropped != 1 {
			w.Errorf("State = %+v, %v, want no waiting and one dropped command", s, err)
		}
	})
}

// TestChangingShardOf checks that an entity whose shard changes, which Options.ShardOf must not do,
// still has one instance on the node.
func TestChangingShardOf(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 6
		var current atomic.Uint32
		w.options.ShardOf = func(id string) sharding.Shard {
			if id == "x" {
				return sharding.Shard(current.Load())
			}
			return 0
		}
		a := w.start("a")
		b := w.start("b")
		w.up(a, b)
		w.must(b.region.Drain(w.Context()))
		for n := range 3 {
			current.Store(uint32(n))
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
			w.Errorf("%d entities are in memory on a after its drain, want none", n)
		}
	})
}

// TestRememberedEntitiesOfOtherShards changes the number of shards, so that entities belong to
// other shards than those in which they are remembered. It checks that the old shards do not start
// these entities as well: a command starts each entity in its new shard.
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
			w.Error("all entities run before their first command")
		}
		if !strings.Contains(w.log.String(), "stored entities belong to other shards now") {
			w.Error("the log has no line about entities of other shards")
		}
		w.spread([]*host{a}, 20, 1)
		w.wantRunning(20, a)
		s, err := a.region.State(w.Context())
		w.must(err)
		for _, shard := range s.Shards {
			for _, id := range shard.Entities {
				if n, err := a.region.ShardOf(id); err != nil || n != shard.Shard {
					w.Errorf("%s runs in shard %d, want %d: %v", id, shard.Shard, n, err)
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

func (closingStore) Close() error { panic("injected panic of Close") }

// TestStoreCloseFails checks that a failed Close of a store is logged, and that the node still
// ends.
func TestStoreCloseFails(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		a := w.join("a")
		o := w.opts(a)
		o.State = closing{o.State}
		var err error
		a.region, err = sharding.Host(w.Context(), a.Node, a.rt, diaries("a"), o)
		w.must(err)
		w.up(a)
		w.must(a.Shutdown(w.Context()))
		<-a.region.Done()
		if !strings.Contains(w.log.String(), "cannot close a store") {
			w.Error("the log has no line about the failed Close")
		}
	})
}

// slowStrategy is a strategy that ignores the end of its context until the test releases it.
type slowStrategy struct {
	sharding.Strategy

	end chan struct{}
}

func (d slowStrategy) Allocate(ctx context.Context, view allocation.View, request allocation.Request) (identity.Node, error) {
	<-d.end
	return d.Strategy.Allocate(ctx, view, request)
}

// TestStrategyIgnoresItsContext checks that a strategy that ignores the end of its context is
// logged, and that shards get homes when it returns.
func TestStrategyIgnoresItsContext(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		end := make(chan struct{})
		w.options.Strategy = slowStrategy{sharding.Pure(allocation.LeastShards{}), end}
		a := w.cluster("a")[0]
		soon, cancel := context.WithTimeout(w.Context(), 9*time.Second)
		defer cancel()
		if _, err := eventsourcing.Ask(soon, a.region.Ref("x"), write{By: "a"}); !eventsourcing.NotDone(err) {
			w.Errorf("ask before the strategy returns: got error %v, want one with NotDone", err)
		}
		if s := w.log.String(); strings.Contains(s, "has not returned") {
			w.Error("the late call was logged before its timeout")
		}
		w.sleep(5 * time.Second)
		if s := w.log.String(); strings.Count(s, "call=allocate error=\"the call has not returned after its timeout") != 1 {
			w.Error("the late call was not logged exactly once")
		}
		close(end)
		if _, err := ask(w, a, "x", write{By: "a"}); err != nil {
			w.Error(err)
		}
	})
}

// TestMissingRepliesAreForgotten checks that an ask whose caller no longer waits is removed
// although the other node never replies.
func TestMissingRepliesAreForgotten(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Shards = 10
		all := w.cluster("a", "b")
		remote := uint64(0)
		for n := range 10 {
			p, err := ask(w, all[0], "d"+strconv.Itoa(n), write{By: "a"})
			w.must(err)
			if p.Node == "b" {
				remote++
			}
			short, cancel := context.WithTimeout(w.Context(), time.Second)
			_, err = eventsourcing.Ask(short, all[0].region.Ref("d"+strconv.Itoa(n)), ponder{Stay: true})
			cancel()
			w.wantErr(err, eventsourcing.ErrOutcomeUnknown, true)
		}
		w.sleep(30 * time.Second)
		if s, err := all[0].region.State(w.Context()); err != nil || s.Asks != 0 || s.Unanswered != remote || remote == 0 {
			w.Errorf("%d asks of another node: Asks = %d, Unanswered = %d, want none and all: %v", remote, s.Asks, s.Unanswered, err)
		}
	})
}

// TestNetworkOutage checks that nodes without a network refuse commands, and that the entities run
// again when the network returns.
func TestNetworkOutage(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		all := w.cluster("a", "b", "c")
		w.spread(all, 12, 0)
		var back []func()
		for _, h := range all {
			back = append(back, w.network.Disconnect(h.Self().Name, errors.New("no broker")))
		}
		for _, h := range all {
			for !h.State().Suspended {
				w.sleep(time.Second)
			}
			w.sleep(time.Second)
			if n := h.rt.Resident()["diary"]; n != 0 {
				w.Errorf("%d entities are in memory on the suspended node %v, want none", n, h.Self())
			}
			_, err := ask(w, h, "d0", write{By: "unknown"})
			w.wantErr(err, sharding.ErrStopped, false)
		}
		w.sleep(30 * time.Second)
		for _, f := range back {
			f()
		}
		for _, h := range all {
			for h.State().Suspended {
				w.sleep(time.Second)
			}
		}
		w.sleep(30 * time.Second)
		if where := w.spread(all, 12, 1); len(where) < 2 {
			w.Errorf("all entities are on %v, want at least two nodes", where)
		}
		for d := range 12 {
			for _, h := range all {
				w.wrote(h, "d"+strconv.Itoa(d), h.Self().Name, 2)
			}
		}
	})
}
