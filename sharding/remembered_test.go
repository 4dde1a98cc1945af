// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
)

// running returns the host of each running entity, and checks that each entity runs once.
func (w *world) running(hosts ...*host) map[string]*host {
	w.Helper()
	at := map[string]*host{}
	for _, h := range hosts {
		s, err := h.region.State(w.Context())
		w.must(err)
		for _, shard := range s.Shards {
			for _, id := range shard.Entities {
				if other := at[id]; other != nil {
					w.Errorf("entity %s runs on %v and on %v", id, other.Self(), h.Self())
				}
				at[id] = h
			}
		}
	}
	return at
}

func (w *world) wantRunning(n int, hosts ...*host) {
	w.Helper()
	got, resident := w.running(hosts...), 0
	for _, h := range hosts {
		resident += h.rt.Resident()["diary"]
	}
	if len(got) != n || resident != n {
		w.Errorf("%d entities are in memory, the regions report %d, want %d: %v", resident, len(got), n, got)
	}
}

// TestRememberedEntitiesRunAgain checks that entities run again without a command: after a node has
// left, after a node has crashed, and after all nodes were stopped. Entities that have requested to
// be stopped do not run again.
func TestRememberedEntitiesRunAgain(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		w.remembers = true
		all := w.cluster("a", "b", "c")
		w.spread(all, 20, 0)
		w.sleep(10 * time.Minute) // without commands
		w.wantRunning(20, all...)
		for n := range 5 {
			_, err := ask(w, all[0], "d"+strconv.Itoa(n), closeIt{})
			w.must(err)
		}
		w.sleep(time.Second)
		w.wantRunning(15, all...)
		w.must(all[0].Shutdown(w.Context()))
		w.sleep(30 * time.Second)
		w.wantRunning(15, all[1:]...)
		w.halt()

		all = w.cluster("a", "b", "c")
		w.sleep(time.Minute)
		w.wantRunning(15, all...)
		w.network.CutOneWay([]string{"c"}, []string{"a", "b"})
		w.network.CutOneWay([]string{"a", "b"}, []string{"c"})
		<-all[2].Done()
		w.sleep(2 * time.Minute)
		w.wantRunning(15, all[:2]...)
		for d := range 20 {
			w.wrote(all[0], "d"+strconv.Itoa(d), "b", 1)
		}
		w.wantRunning(20, all[:2]...)
	})
}

// TestRecoverNumber checks that RecoverNumber entities of all shards together start in each
// interval.
func TestRecoverNumber(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.remembers, w.options.Shards = true, 10
		w.options.Tuning.RecoverNumber, w.options.Tuning.RecoverInterval = 2, time.Second
		a := w.cluster("a")
		w.spread(a, 30, 0)
		w.halt()
		a = w.cluster("a")
		w.sleep(130 * time.Millisecond) // count between the starts, not at the same instant
		last := len(w.running(a...))
		for last < 30 {
			w.sleep(time.Second)
			n := len(w.running(a...))
			if n > last+2 {
				w.Errorf("%d entities run one second after %d ran, want at most 2 more", n, last)
			}
			if last > 0 && n == last {
				w.Fatalf("%d entities run, as many as one second before, want more", n)
			}
			last = n
		}
	})
}

// TestRememberedEntityEnds checks that an entity that has ended is started again after
// RestartBackoff, without a command.
func TestRememberedEntityEnds(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.remembers, w.options.Shards, w.options.Tuning.RestartBackoff = true, 10, 20*time.Second
		a := w.cluster("a")
		for _, id := range []string{"x", "y"} {
			_, err := ask(w, a[0], id, perish{})
			w.must(err)
		}
		w.sleep(19 * time.Second)
		w.wantRunning(0, a...)
		w.wrote(a[0], "x", "a", 0)
		w.wantRunning(1, a...)
		w.sleep(2 * time.Second)
		w.wantRunning(2, a...)
		_, err := ask(w, a[0], strings.Repeat("x", journal.MaxIDLength), read{}) // the ID and the type together are too long
		w.wantErr(err, eventsourcing.ErrInvalid, false)
		s, err := a[0].region.State(w.Context())
		w.must(err)
		for _, shard := range s.Shards {
			if shard.Tracked != len(shard.Entities) {
				w.Errorf("an invalid entity is remembered: %+v", shard)
			}
		}
	})
}

// faultyStore is a store of remembered entities whose calls fail or take long on demand.
type faultyStore struct {
	sharding.RememberStore
	sharding.RememberStores

	mu    sync.Mutex
	fails map[string]int // number of failures, by call
	slow  time.Duration  // delay of the next call
}

func (f *faultyStore) OpenEntities(s sharding.Scope) (store sharding.RememberStore, err error) {
	f.RememberStore, err = f.RememberStores.OpenEntities(s)
	return f, err
}

func (f *faultyStore) fail(call string) error {
	f.mu.Lock()
	slow := f.slow
	f.slow = 0
	f.mu.Unlock()
	<-time.After(slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails[call] > 0 {
		f.fails[call]--
		if f.fails[call]%2 == 0 {
			panic("the store panics")
		}
		return errors.New("the disk is full")
	}
	return nil
}

func (f *faultyStore) Load(ctx context.Context, shard sharding.Shard) ([]string, error) {
	if err := f.fail("load"); err != nil {
		return nil, err
	}
	return f.RememberStore.Load(ctx, shard)
}

func (f *faultyStore) Update(ctx context.Context, shard sharding.Shard, started, stopped []string) error {
	if err := f.fail("update"); err != nil {
		return err
	}
	return f.RememberStore.Update(ctx, shard, started, stopped)
}

func (f *faultyStore) Shards(ctx context.Context) ([]sharding.Shard, error) {
	if err := f.fail("shards"); err != nil {
		return nil, err
	}
	return f.RememberStore.Shards(ctx)
}

func (f *faultyStore) AddShards(ctx context.Context, shards []sharding.Shard) error {
	if err := f.fail("add"); err != nil {
		return err
	}
	return f.RememberStore.AddShards(ctx, shards)
}

// TestRememberStoreFails lets each call of the store fail with an error, fail with a panic, and be
// slow. The shard starts again, and waiting commands are refused or handled.
func TestRememberStoreFails(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"load", "update", "shards", "add"} {
		for _, slow := range []time.Duration{0, time.Minute} {
			in(t, func(w *world) {
				store := &faultyStore{RememberStores: sharding.JournalStores{Journal: w.journal}, fails: map[string]int{call: 2}, slow: slow}
				w.options.Shards, w.options.Remember = 1, store
				a := w.start("a")
				for try := 0; ; try++ {
					_, err := ask(w, a, "x", write{By: "a"})
					if err == nil {
						break
					}
					if !eventsourcing.NotDone(err) || try == 5 {
						w.Fatalf("%s: got error %v, want refused commands and a success within 5 tries", call, err)
					}
				}
				w.wrote(a, "x", "a", 1)
				w.halt()
				a = w.start("a")
				w.sleep(2 * time.Minute)
				w.wantRunning(1, a)
			})
		}
	}
}
