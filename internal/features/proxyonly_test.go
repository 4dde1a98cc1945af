// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
)

// A node that only sends commands starts entities on the other nodes, without a command. It hosts
// none, although it runs the coordinator.
func TestProxyOnlyNode(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, db store.DB) {
		t.Helper()
		f := startNodes(t, db, 3)
		ctx := within(t)
		var regions []*sharding.Region[tally]
		for i, node := range f.nodes {
			r, err := sharding.Host(ctx, node, f.runtimes[i], tallyType(), sharding.Options{Shards: 10, ProxyOnly: i == 0})
			if err != nil {
				t.Fatal(err)
			}
			regions = append(regions, r)
		}
		for id := range 20 {
			to := fmt.Sprint(id)
			if err := regions[0].Start(ctx, to); err != nil {
				t.Fatal(err)
			}
			if n, err := eventsourcing.Ask(ctx, regions[0].Ref(to), count{By: 1}); n != 1 || err != nil {
				t.Errorf("the first reply of entity %d is %d, %v, want 1", id, n, err)
			}
		}
		running := 0
		for i, r := range regions {
			s, err := r.State(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && (len(s.Shards) > 0 || s.Coordinator != f.nodes[0].Self()) {
				t.Errorf("node-0 hosts %v, the coordinator runs on %v, want no shards and node-0", s.Shards, s.Coordinator)
			}
			for _, at := range s.Shards {
				running += len(at.Entities)
			}
		}
		if running != 20 {
			t.Errorf("%d entities run on node-1 and node-2, want 20", running)
		}
	})
}
