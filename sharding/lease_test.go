// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/plugins/inmem"
)

// useLeases lets the shards of all nodes require leases.
func (w *world) useLeases(shards int) *inmem.Leases {
	leases := inmem.NewLeases(20 * time.Second)
	w.leases, w.options.Lease, w.options.Shards = leases, true, shards
	return leases
}

// owners returns the numbers of leases by owner.
func (w *world) owners(leases lease.Store, shards int) map[string]int {
	w.Helper()
	all := map[string]int{}
	for n := range shards {
		entry, err := leases.Get(w.Context(), fmt.Sprintf("library-shard-diary-%d", n))
		if err != nil && !errors.Is(err, lease.ErrFree) {
			w.Error(err)
		}
		all[entry.Owner]++
	}
	return all
}

// A shard runs only on the node that holds its lease. A planned move releases the lease first, so
// that the next home does not wait.
func TestLeasePerShard(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		leases := w.useLeases(10)
		all := w.cluster("a", "b")
		w.spread(all, 30, 0)
		owners := w.owners(leases, 10)
		for _, h := range all {
			s, err := h.region.State(w.Context())
			if w.must(err); owners[h.Self().String()] != len(s.Shards) {
				w.Errorf("%v hosts %d shards and holds %d leases, want equal numbers", h.Self(), len(s.Shards), owners[h.Self().String()])
			}
		}
		began := time.Now()
		w.must(all[0].region.Drain(w.Context()))
		if where := w.spread(all, 30, 1); where["b"] != 60 || len(w.lines("waits for its lease")) > 0 || time.Since(began) >= 5*time.Second {
			w.Errorf("after the drain of a: replies by node %v, took %v, want all of b without waiting for a lease", where, time.Since(began))
		}
		if owners = w.owners(leases, 10); owners[all[1].Self().String()] != 10 {
			w.Errorf("leases by owner after the drain of a: %v, want all of b", owners)
		}
		w.must(all[1].Shutdown(w.Context()))
		w.up(all[0])
		w.must(all[0].region.Undrain(w.Context()))
		w.spread(all[:1], 30, 2)
	})
}

// Commands for a shard wait while another owner holds its lease.
func TestShardWaitsForItsLease(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		leases := w.useLeases(1)
		revision, err := leases.Create(w.Context(), "library-shard-diary-0", "another cluster")
		w.must(err)
		a := w.cluster("a")[0]
		soon, cancel := context.WithTimeout(w.Context(), 12*time.Second)
		defer cancel()
		if _, err = eventsourcing.Ask(soon, a.region.Ref("x"), write{By: "a"}); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Ask while another owner holds the lease: %v, want DeadlineExceeded", err)
		}
		if n := len(w.lines("waits for its lease")); n != 3 {
			w.Errorf("%d attempts in 12 s, want 3", n)
		}
		w.wantRunning(0, a)
		w.must(leases.Delete(w.Context(), "library-shard-diary-0", revision))
		_, err = ask(w, a, "x", write{By: "a"})
		w.must(err)
		w.wantRunning(1, a)
	})
}

// A node that loses the lease of a shard kills its entities. They run again when it has the lease
// again.
func TestLostLeaseOfAShard(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		leases := w.useLeases(1)
		a := w.cluster("a")[0]
		for n := range 3 {
			_, err := ask(w, a, "x", write{By: "a", N: n})
			w.must(err)
		}
		w.wantRunning(1, a)
		entry, err := leases.Get(w.Context(), "library-shard-diary-0")
		w.must(err)
		w.must(leases.Delete(w.Context(), "library-shard-diary-0", entry.Revision))
		revision, err := leases.Create(w.Context(), "library-shard-diary-0", "another cluster")
		w.must(err)
		w.sleep(6 * time.Second) // the next renewal fails
		w.wantRunning(0, a)
		if n := len(w.lines("lease of a shard lost")); n != 1 {
			w.Errorf("the log reports %d lost leases, want 1", n)
		}
		answered := w.asks(w.Context(), a, "x")
		w.sleep(10 * time.Second) // the other owner does not renew its lease
		select {
		case err = <-answered:
			w.Errorf("an entity without a lease has answered: %v", err)
		default:
		}
		w.must(leases.Delete(w.Context(), "library-shard-diary-0", revision))
		w.must(<-answered)
		w.wrote(a, "x", "a", 3)
	})
}
