// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/store"
)

// shell is a coordinator with its store, as one node runs it.
type shell struct {
	tb          testing.TB
	m           *coordinator.Machine
	store       sharding.CoordinatorStore
	in          chan coordinator.Input // replies of the store
	open        int                    // pending calls of the store
	saves, size int
	began       time.Time
}

func (s *shell) step(in coordinator.Input) { s.apply(s.m.Step(time.Since(s.began), in)) }

func (s *shell) apply(e coordinator.Effects) {
	ctx := s.tb.Context()
	if e.Load != 0 {
		s.open++
		go func() {
			state, _, rev, err := restored(ctx, s.store)
			if err != nil {
				s.in <- coordinator.LoadFailed{ID: e.Load}
				return
			}
			s.in <- coordinator.Loaded{ID: e.Load, State: state, Rev: rev}
		}()
	}
	if e.Save != nil {
		s.saves++
		for _, ev := range e.Save.Events {
			s.size += len(coordinator.AppendEvent(nil, ev))
		}
		s.open++
		go func() {
			if err := s.store.Save(ctx, stored(&e.Save.Change)); err != nil {
				s.in <- coordinator.SaveFailed{ID: e.Save.ID, Fenced: errors.Is(err, sharding.ErrFenced)}
				return
			}
			s.in <- coordinator.Saved{ID: e.Save.ID}
		}()
	}
	if e.Ask != nil {
		s.step(coordinator.HomesChosen{ID: e.Ask.ID, Homes: allocation.All(e.Ask.View, e.Ask.Requests, allocation.LeastShards{}.Allocate)})
	}
	for _, o := range e.Send {
		if m := o.Message; m.Kind == coordinator.Host && len(m.Shards) == 0 { // a probe
			s.step(coordinator.Received{From: o.To, Message: coordinator.Message{
				Kind: coordinator.Hosted, Type: m.Type, Term: m.Term, Round: m.Round, Instance: m.Instance,
			}})
		}
	}
	if e.Stop != 0 {
		s.tb.Fatalf("the coordinator stopped: %v", e.Stop)
	}
}

// poll passes the replies of the store to the coordinator.
func (s *shell) poll(wait bool) {
	for s.open > 0 {
		if !wait && len(s.in) == 0 {
			return
		}
		in := <-s.in
		s.open--
		s.step(in)
		wait = false
	}
}

// allocate requests the homes of shards one by one, and waits until all shards have a home.
func (s *shell) allocate(regions []identity.Node, shards int) {
	s.began = time.Now()
	var view coordinator.Members
	for i, n := range regions {
		view.Members = append(view.Members, identity.Member{Node: n, Status: identity.Up, UpNumber: int32(i)})
	}
	s.step(view)
	for s.m.Phase() != coordinator.Active {
		s.poll(true)
	}
	for _, n := range regions {
		s.step(coordinator.Received{From: n, Message: coordinator.Message{Kind: coordinator.Register, Type: "account", Instance: 1}})
	}
	known := func() int { st, _ := s.m.State(); return len(st.Regions()) }
	for known() < len(regions) {
		s.poll(true)
	}
	for i := range shards {
		n := regions[i%len(regions)]
		s.step(coordinator.Received{From: n, Message: coordinator.Message{
			Kind: coordinator.GetHomes, Type: "account", Term: s.m.Term(), Instance: 1, Shards: []shard{shard(i)},
		}})
		s.poll(false)
	}
	for {
		if st, _ := s.m.State(); st.Shards() == shards {
			break
		}
		if s.open == 0 {
			s.tb.Fatal("no call is pending, and not all shards have a home")
		}
		s.poll(true)
	}
}

func tenThousand(tb testing.TB, stores sharding.CoordinatorStores) *shell {
	tb.Helper()
	regions := []identity.Node{node("a"), node("b"), node("c")}
	m, err := coordinator.New(coordinator.Config{Self: regions[0], Type: "account", Shards: 10_000, MinRegions: 3})
	if err != nil {
		tb.Fatal(err)
	}
	s := &shell{tb: tb, m: m, store: open(tb, stores, "a").store, in: make(chan coordinator.Input, 100)}
	s.allocate(regions, 10_000)
	return s
}

// Ten thousand shards get their homes in few saves.
func TestTenThousandShards(t *testing.T) {
	t.Parallel()
	j, snapshots := inmem.NewJournal(), inmem.NewSnapshotStore()
	if s := tenThousand(t, sharding.JournalStores{Journal: j, Snapshots: snapshots}); s.saves > 200 {
		t.Errorf("%d saves in the journal, want at most 200", s.saves)
	}
	b := open(t, sharding.JournalStores{Journal: j, Snapshots: snapshots}, "b")
	if b.must(b.load()); b.state.Shards() != 10_000 {
		t.Errorf("%d shards are stored, want 10,000", b.state.Shards())
	}
}

func BenchmarkTenThousandShards(b *testing.B) {
	for name, stores := range map[string]func(b *testing.B) sharding.CoordinatorStores{
		"inmem": func(*testing.B) sharding.CoordinatorStores {
			return sharding.JournalStores{Journal: inmem.NewJournal(), Snapshots: inmem.NewSnapshotStore()}
		},
		"leveldb": func(b *testing.B) sharding.CoordinatorStores {
			b.Helper()
			db, err := leveldb.Open(b.TempDir(), leveldb.Config{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = db.Close() })
			return sharding.JournalStores{Journal: db.Journal(), Snapshots: db.Snapshots()}
		},
		"replicated": func(b *testing.B) sharding.CoordinatorStores {
			b.Helper()
			return sharding.ReplicatedStores{Replicator: live(b, 3)}
		},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := stores(b)
				b.StartTimer()
				did := tenThousand(b, s)
				b.ReportMetric(float64(did.saves), "saves")
				b.ReportMetric(float64(did.size)/float64(did.saves), "event-bytes/save")
			}
		})
	}
}

// live returns the replicator of the first of some nodes, on the real clock.
func live(b *testing.B, n int) *ddata.Replicator {
	b.Helper()
	network := inmem.NewNetwork(inmem.NetworkConfig{})
	var first *ddata.Replicator
	for i := range n {
		self, err := identity.New(fmt.Sprint("n", i))
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		member, err := cluster.Join(ctx, cluster.Config{Cluster: "bench", Carrier: network.Carrier(self), Seeds: []string{"n0"}})
		if err == nil {
			b.Cleanup(func() { member.Stop(); <-member.Done() })
			err = member.AwaitUp(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
		r, err := ddata.Start(ctx, member, ddata.Config{})
		if err != nil {
			b.Fatal(err)
		}
		if first == nil {
			first = r
		}
	}
	for range first.Node().Events(b.Context()) {
		if first.ReplicaCount() == n {
			break
		}
	}
	return first
}

// BenchmarkAsk compares an ask on a local host with an ask through a region, for an entity on this
// node and for an entity on another node.
func BenchmarkAsk(b *testing.B) {
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	var regions []*sharding.Region[diary]
	for _, name := range []string{"a", "b"} {
		self, err := identity.New(name)
		if err != nil {
			b.Fatal(err)
		}
		n, err := cluster.Join(b.Context(), cluster.Config{Cluster: "library", Carrier: network.Carrier(self), Seeds: []string{"a"}})
		if err != nil {
			b.Fatal(err)
		}
		rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = n.Shutdown(context.Background())
			_ = rt.Close(context.Background())
		})
		r, err := sharding.Host(b.Context(), n, rt, diaries(name), sharding.Options{State: sharding.JournalStores{Journal: journal}, Shards: 20, MinMembers: 2})
		if err != nil {
			b.Fatal(err)
		}
		regions = append(regions, r)
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(journal, nil)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rt.Close(context.Background()) })
	local, err := eventsourcing.Host(rt, diaries("local"))
	if err != nil {
		b.Fatal(err)
	}
	here, there := map[string]bool{}, map[string]bool{}
	for n := 0; len(here) < 64 || len(there) < 64; n++ {
		id := strconv.Itoa(n)
		p, err := eventsourcing.Ask(b.Context(), regions[0].Ref(id), write{})
		if err != nil {
			b.Fatal(err)
		}
		map[string]map[string]bool{"a": here, "b": there}[p.Node][id] = true
	}
	ids := func(of map[string]bool) (all []string) {
		for id := range of {
			all = append(all, id)
		}
		return all[:64]
	}
	for _, c := range []struct {
		name string
		ref  func(string) eventsourcing.Ref[diary]
		ids  []string
	}{{"host", local.Ref, ids(here)}, {"here", regions[0].Ref, ids(here)}, {"there", regions[0].Ref, ids(there)}} {
		for _, callers := range []int{1, 64} {
			b.Run(c.name+"/callers="+strconv.Itoa(callers), func(b *testing.B) {
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						ref := c.ref(c.ids[i])
						for left.Add(-1) >= 0 {
							if _, err := eventsourcing.Ask(b.Context(), ref, read{}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
