// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// The state of the most shards there can be fits into what a key of replicated data holds by default.
func TestAStateFitsOneKey(t *testing.T) {
	t.Parallel()
	for _, regions := range []int{3, 100, 1000, 3000} {
		events := []event{started(1, "a")}
		each := coordinator.MaxShards / regions
		for i := range regions {
			name := fmt.Sprintf("refold-%d.accounts.bank.svc.cluster.local:7000", i)
			var shards []shard
			for s := range each {
				shards = append(shards, shard(s*regions+i))
			}
			events = append(events, registered(name), allocated(name, shards...))
		}
		s, err := coordinator.State{}.Apply(events...)
		if err != nil {
			t.Fatal(err)
		}
		size := len(coordinator.AppendState(nil, s))
		if t.Logf("%d regions, %d shards: %d bytes", regions, s.Shards(), size); size > 512<<10-1<<10 {
			t.Errorf("%d regions, %d shards: %d bytes", regions, s.Shards(), size)
		}
	}
}
