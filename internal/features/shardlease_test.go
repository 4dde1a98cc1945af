// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// Each shard requires a lease in NATS. The lease follows the shard when its node leaves.
func TestLeasePerShard(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		f := startNodes(t, db, 0)
		ctx := within(t)
		ops := nats.LeasesConfig{Access: f.server.Access(), Cluster: "features", Name: "ops", Timeout: time.Minute}
		if err := nats.CreateLeaseBucket(ctx, ops); err != nil {
			t.Fatal(err)
		}
		leases := make([]*nats.Leases, 3)
		for i := range leases {
			opened, err := nats.OpenLeases(ctx, nats.LeasesConfig{Access: f.server.Access(), Cluster: "features", Name: fmt.Sprintf("node-%d", i), Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			leases[i] = opened
			t.Cleanup(func() {
				if closed := opened.Close(); closed != nil {
					t.Error(closed)
				}
			})
		}
		var regions []*sharding.Region[tally]
		for i := range leases {
			f.add(func(c *cluster.Config) { c.Leases = leases[i] })
			r, err := sharding.Host(ctx, f.nodes[i], f.runtimes[i], tallyType(), sharding.Options{Shards: 6, Lease: true})
			if err != nil {
				t.Fatal(err)
			}
			regions = append(regions, r)
		}
		ask := func(by *sharding.Region[tally], want int) {
			t.Helper()
			for id := range 20 {
				if n, err := eventsourcing.Ask(ctx, by.Ref(fmt.Sprint(id)), count{By: 1}); n != want || err != nil {
					t.Fatalf("the reply of entity %d is %d, %v, want %d", id, n, err, want)
				}
			}
		}
		ask(regions[1], 1)
		if err := f.nodes[0].Shutdown(ctx); err != nil {
			t.Error(err)
		}
		ask(regions[1], 2)
		for n := range 6 {
			home, known, err := regions[1].Home(ctx, sharding.Shard(n))
			if err != nil || !known {
				t.Errorf("home of shard %d: %t, %v", n, known, err)
				continue
			}
			entry, err := leases[2].Get(ctx, fmt.Sprintf("features-shard-tally-%d", n))
			if err != nil || entry.Owner != home.String() {
				t.Errorf("the lease of shard %d belongs to %q, %v, want its home %v", n, entry.Owner, err, home)
			}
		}
	})
}
