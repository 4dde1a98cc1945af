// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/sharding"
)

// BenchmarkAsk compares an ask on a local host with one through a region, for an entity that is here and for one that is not.
func BenchmarkAsk(b *testing.B) {
	network, journal := inmem.NewNetwork(inmem.NetworkConfig{}), inmem.NewJournal()
	var regions []*sharding.Region[diaryCommand]
	for _, name := range []string{"a", "b"} {
		self, err := identity.New(name)
		if err != nil {
			b.Fatal(err)
		}
		n, err := cluster.Join(b.Context(), cluster.Config{Cluster: "library", Carrier: network.Carrier(self), Seeds: []string{"a"}})
		if err != nil {
			b.Fatal(err)
		}
		rt, err := eventsourcing.Open(eventsourcing.Config{Journal: journal})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = n.Shutdown(context.Background())
			_ = rt.Close(context.Background())
		})
		r, err := sharding.Start(b.Context(), n, diaries(name), sharding.Options{Runtime: rt, State: sharding.JournalState(journal, nil), Shards: 20, MinMembers: 2})
		if err != nil {
			b.Fatal(err)
		}
		regions = append(regions, r)
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Journal: journal})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rt.Close(context.Background()) })
	local, err := eventsourcing.Host(rt, diaries("local"), eventsourcing.HostOptions{})
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
		ref  func(string) eventsourcing.Ref[diaryCommand]
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
