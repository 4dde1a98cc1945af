// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding"
)

// TestStatistics checks that any region and any proxy can query all regions, and that the result
// names the regions that do not reply in time.
func TestStatistics(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards = "library", 10
		all := []*host{w.start("a", "library"), w.start("b", "library"), w.start("c", "library"), w.start("d")} // d is a proxy
		w.up(all...)
		w.spread(all, 20, 0)
		ids := []identity.Node{all[0].Self(), all[1].Self(), all[2].Self()}
		want := map[sharding.Shard]int{}
		for d := range 20 {
			n, err := all[0].region.ShardOf(id(d))
			w.must(err)
			want[n]++
		}
		for _, h := range all {
			nodes, err := h.region.CurrentRegions(w.Context())
			if err != nil || !slices.Equal(nodes, ids) {
				w.Errorf("CurrentRegions of %v = %v, %v, want all hosts", h.Self(), nodes, err)
			}
			s, err := h.region.Statistics(w.Context(), 0)
			w.must(err)
			if len(s.Regions) != 3 || len(s.Missing) != 0 || s.Entities() != 20 {
				w.Fatalf("Statistics of %v = %+v, want 3 regions with 20 entities and none missing", h.Self(), s)
			}
			for i, r := range s.Regions {
				if r.Node != ids[i] || len(r.Shards) == 0 {
					w.Errorf("Statistics of %v: region %d is %+v, want a region of %v with shards", h.Self(), i, r, ids[i])
				}
				for _, c := range r.Shards {
					if c.Entities != want[c.Shard] {
						w.Errorf("Statistics of %v: shard %d is %+v, want %d entities", h.Self(), c.Shard, c, want[c.Shard])
					}
				}
			}
		}
		begun := time.Now()
		resume := w.network.Pause("c")
		s, err := all[3].region.Statistics(w.Context(), 2*time.Second)
		w.must(err)
		if took := time.Since(begun); took != 2*time.Second || len(s.Regions) != 2 || !slices.Equal(s.Missing, ids[2:]) {
			w.Errorf("with c paused: Statistics after %v = %+v, want 2 regions after 2 s, and c missing", took, s)
		}
		resume()
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := all[1].region.Statistics(ended, 0); !errors.Is(err, context.Canceled) {
			w.Errorf("Statistics with an ended context: %v, want Canceled", err)
		}
		w.network.Pause("a")
		for _, ask := range []func() error{
			func() error { _, err := all[1].region.CurrentRegions(w.Context()); return err },
			func() error { _, err := all[1].region.Statistics(w.Context(), time.Second); return err },
		} {
			if err := ask(); !errors.Is(err, sharding.ErrNoCoordinator) {
				w.Errorf("with the coordinator paused: %v, want ErrNoCoordinator", err)
			}
		}
	})
}

// TestStatisticsWithoutCoordinator checks that there are no statistics without a coordinator, or
// from a region that has ended.
func TestStatisticsWithoutCoordinator(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards = "library", 10
		a := w.start("a")
		w.up(a)
		if _, err := a.region.CurrentRegions(w.Context()); !errors.Is(err, sharding.ErrNoCoordinator) {
			w.Errorf("without a node of the role: %v, want ErrNoCoordinator", err)
		}
		w.must(a.Shutdown(w.Context()))
		if _, err := a.region.Statistics(w.Context(), 0); !errors.Is(err, sharding.ErrStopped) {
			w.Errorf("after the end of the region: %v, want ErrStopped", err)
		}
	})
}
