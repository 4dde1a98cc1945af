// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/eventsourcing"
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

// TestStatsOf checks that the figures of the nodes follow the shards of a drained node.
func TestStatsOf(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards = "library", 10
		all := []*host{w.start("a", "library"), w.start("b", "library"), w.start("d")} // d is a proxy
		w.up(all...)
		w.spread(all, 50, 0)
		stats := func(h *host) sharding.Stats {
			found, err := sharding.StatsOf(w.Context(), h.Node)
			w.must(err)
			if len(found) != 1 || !found[0].Registered || found[0].Proxy != (h == all[2]) {
				w.Fatalf("StatsOf %v = %+v, want one registered region, and a proxy on d", h.Self(), found)
			}
			return found[0]
		}
		a, b := stats(all[0]), stats(all[1])
		if a.Shards == 0 || a.Shards+b.Shards != 10 || a.Entities+b.Entities != 50 || a.Coordinator == nil || a.Coordinator.Placed != 10 || b.Coordinator != nil {
			w.Errorf("a has %+v, b has %+v, want 10 shards, 50 entities and the coordinator on a", a, b)
		}
		moved := uint64(b.Shards)
		w.must(all[1].region.Drain(w.Context()))
		w.sleep(time.Second) // the coordinator stores the end of the hand-off
		if a, b = stats(all[0]), stats(all[1]); a.HandedOff != moved || a.NotHandedOff != 0 || b.Shards != 0 || b.HandedOff != 0 {
			w.Errorf("after the drain of b: a has %+v, b has %+v, want %d shards handed off by the coordinator on a", a, b, moved)
		}
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := sharding.StatsOf(ended, all[0].Node); !errors.Is(err, context.Canceled) {
			w.Errorf("StatsOf with an ended context: %v, want Canceled", err)
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

// TestPresence checks that each node can query the presence of an entity on its home, before, during and
// after a recovery, after a move, and that the query does not start the entity.
func TestPresence(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role, w.options.Shards = "library", 10
		block := map[string]chan struct{}{"slow": make(chan struct{})}
		w.made = func(id string) {
			if block[id] != nil {
				<-block[id]
			}
		}
		all := []*host{w.start("a", "library"), w.start("b", "library"), w.start("c", "library"), w.start("d")} // d is a proxy
		w.up(all...)
		for _, h := range all {
			w.must(h.region.AwaitReady(w.Context()))
		}
		want := func(at, id string, want eventsourcing.Presence, hosts ...*host) {
			w.Helper()
			for _, h := range hosts {
				if got, err := h.region.Presence(w.Context(), id); got != want || err != nil {
					w.Errorf("%s: on %v, entity %q is %v, %v, want %v", at, h.Self(), id, got, err, want)
				}
			}
		}
		want("without a home", "x", eventsourcing.Absent, all...)
		p, err := ask(w, all[3], "x", write{})
		w.must(err)
		want("running", "x", eventsourcing.Running, all...)
		w.wantRunning(1, all[:3]...)
		slow := make(chan error, 1)
		go func() {
			_, asked := ask(w, all[3], "slow", write{})
			slow <- asked
		}()
		synctest.Wait()
		want("while it recovers", "slow", eventsourcing.Recovering, all...)
		close(block["slow"])
		w.must(<-slow)
		want("recovered", "slow", eventsourcing.Running, all...)

		home := w.nodes[p.Node]
		others := slices.DeleteFunc(slices.Clone(all), func(h *host) bool { return h == home })
		w.must(home.region.Drain(w.Context()))
		want("after a move", "x", eventsourcing.Absent, all...)
		p, err = ask(w, others[0], "x", write{})
		w.must(err)
		want("started again", "x", eventsourcing.Running, all...)

		if _, err := all[3].region.Presence(w.Context(), ""); !errors.Is(err, sharding.ErrInvalid) {
			w.Errorf("without an ID: %v, want ErrInvalid", err)
		}
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := all[1].region.Presence(ended, "x"); !errors.Is(err, context.Canceled) {
			w.Errorf("with an ended context: %v, want Canceled", err)
		}
		w.network.Pause(p.Node)
		if got, err := all[3].region.Presence(w.Context(), "x"); err == nil {
			w.Errorf("with the home paused: %v, want an error", got)
		}
	})
}

// TestPresenceWithoutCoordinator checks that there is no answer if neither the home nor a coordinator is
// known.
func TestPresenceWithoutCoordinator(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.Role = "library"
		a := w.start("a")
		w.up(a)
		if got, err := a.region.Presence(w.Context(), "x"); !errors.Is(err, sharding.ErrNoCoordinator) {
			w.Errorf("without a node of the role: %v, %v, want ErrNoCoordinator", got, err)
		}
	})
}

// TestPresenceOfRememberedEntity checks that a remembered entity that waits for its restart is not absent.
func TestPresenceOfRememberedEntity(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.remembers, w.options.Tuning.RestartBackoff = true, time.Minute
		all := w.cluster("a", "b")
		want := func(want eventsourcing.Presence) {
			w.Helper()
			synctest.Wait()
			for _, h := range all {
				if got, err := h.region.Presence(w.Context(), "x"); got != want || err != nil {
					w.Errorf("on %v: %v, %v, want %v", h.Self(), got, err, want)
				}
			}
		}
		_, err := ask(w, all[0], "x", perish{})
		w.must(err)
		want(eventsourcing.Recovering)
		w.sleep(2 * time.Minute)
		want(eventsourcing.Running)
	})
}

// TestPresenceWithOutdatedHome checks that a node with an outdated route to the entity queries the
// coordinator.
func TestPresenceWithOutdatedHome(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.options.HandOff, w.options.Shards = sharding.HandOffAtOnce, 1
		all := w.cluster("a", "b", "c")
		p, err := ask(w, all[2], "x", write{})
		w.must(err)
		for p.Node == "c" {
			w.must(all[2].region.Drain(w.Context()))
			p, err = ask(w, all[2], "x", write{})
			w.must(err)
		}
		heal := w.network.Partition([]string{"c"}, []string{"a", "b"})
		home := w.nodes[p.Node]
		w.must(home.region.Drain(w.Context()))
		p, err = ask(w, all[0], "x", write{})
		if w.must(err); p.Node == home.Self().Name {
			w.Fatalf("the entity has stayed on %s", p.Node)
		}
		heal()
		if got, err := all[2].region.Presence(w.Context(), "x"); got != eventsourcing.Running || err != nil {
			w.Errorf("%v, %v, want running", got, err)
		}
	})
}
