// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
)

func TestNodesJoinThroughSeeds(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var nodes []*cluster.Node
		for _, name := range []string{"c", "b", "a", "d"} {
			nodes = append(nodes, w.start(name))
		}
		w.allUp(nodes...)
		leader := nodes[0].State().Leader
		for _, n := range nodes {
			s := n.State()
			if s.Self != n.Self() || !s.Joined || !s.Connected || s.Suspended || s.Stopped || s.Err != nil || s.Leader != leader || leader.Name != "a" {
				w.Errorf("state of %v: %+v, want a connected member with the leader a", n.Self(), s)
			}
			must(w.T, n.AwaitUp(w.Context()))
		}
		if oldest, ok := nodes[0].State().Named("a"); !ok || oldest.UpNumber != 1 {
			w.Errorf("the first seed is the member %+v, want up number 1", oldest)
		}
	})
}

func TestJoin(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.cluster("a")
		cfg := w.config("b")
		cfg.Roles, cfg.Version = []string{"teller", "auditor"}, "1.2.0"
		n, err := cluster.Join(w.Context(), cfg)
		must(w.T, err)
		w.all = append(w.all, n)
		if m, ok := n.State().Member(n.Self()); !ok || m.Version.String() != "1.2.0" || len(m.Roles) != 2 || !m.HasRole("teller") {
			w.Errorf("the node is the member %+v, want version 1.2.0 and both roles", m)
		}
		must(w.T, n.AwaitUp(w.Context()))
		w.until(w.nodes["a"], func(s *cluster.State) bool { return s.Status(n.Self()) == cluster.Up && len(s.RoleLeaders) == 2 })
		if s := w.nodes["a"].State(); s.RoleLeaders[1] != (cluster.RoleLeader{Role: "teller", Node: n.Self()}) {
			w.Errorf("role leaders: %v, want %v as the second", s.RoleLeaders, n.Self())
		}
	})
}

// A node that is not a seed waits for a seed. When the context of Join ends, the node is shut down.
func TestJoinCancelled(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err := cluster.Join(ctx, w.config("d"))
		if !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Join returned %v, want context.DeadlineExceeded", err)
		}
		if !w.logged("join: no seed has accepted this node") {
			w.Error("the log line about silent seeds is missing")
		}
	})
}

func TestNoClusterInTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		n := w.start("d", func(c *cluster.Config) { c.Settings.StopJoiningAfter = 20 * time.Second })
		w.wantEnded(n, cluster.ErrNoCluster)
		if err := n.AwaitJoined(w.Context()); !errors.Is(err, cluster.ErrNoCluster) {
			w.Errorf("AwaitJoined: %v, want ErrNoCluster", err)
		}
	})
}

// A live node keeps its name.
func TestNameInUse(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		_, err := cluster.Join(w.Context(), w.config("b"))
		if !errors.Is(err, cluster.ErrNameInUse) || !strings.HasSuffix(err.Error(), nodes[1].Self().String()) {
			w.Errorf("Join with a name in use: %v, want ErrNameInUse", err)
		}
		w.allUp(nodes...)
	})
}

// Two processes have the name of the first seed and start at the same time or shortly after each
// other. Exactly one of them founds the cluster.
func TestConcurrentFirstSeeds(t *testing.T) {
	t.Parallel()
	for _, seeds := range [][]string{{"a"}, {"a", "b"}} {
		for _, gap := range []time.Duration{0, time.Millisecond, 300 * time.Millisecond} {
			bubble(t, func(w *world) {
				w.seeds = seeds
				one := w.start("a")
				if gap > 0 {
					w.sleep(gap)
				}
				other := w.start("a")
				select {
				case <-one.Done():
					one, other = other, one
				case <-other.Done():
				}
				w.wantEnded(other, cluster.ErrNameInUse)
				if !strings.HasSuffix(other.Err().Error(), one.Self().String()) {
					w.Errorf("the error does not contain the owner of the name: %v", other.Err())
				}
				if s := other.State(); s.Joined {
					w.Errorf("both processes founded a cluster, started %v apart", gap)
				}
				w.allUp(one, w.start("b"))
			})
		}
	}
}

// A process that restarts after a crash is a different node.
func TestRestartWithSameName(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		old := nodes[1].Self()
		nodes[1].Stop()
		w.wantEnded(nodes[1], cluster.ErrStopped)
		again := w.start("b")
		w.allUp(nodes[0], again, nodes[2])
		if again.Self() == old {
			w.Errorf("the restarted process is the same node %v, want another UID", old)
		}
		must(w.T, nodes[0].Watch(w.Context(), old))
	})
}

func TestIncompatibleSettings(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.cluster("a")
		cfg := w.config("b")
		cfg.Check = []cluster.Setting{{Key: "shards", Value: "100"}}
		_, err := cluster.Join(w.Context(), cfg)
		if !errors.Is(err, cluster.ErrIncompatible) || !strings.HasSuffix(err.Error(), ": shards") {
			w.Errorf("join with another key: %v, want ErrIncompatible about shards", err)
		}
		cfg = w.config("b")
		cfg.Downing.StableAfter = time.Minute
		_, err = cluster.Join(w.Context(), cfg)
		if !errors.Is(err, cluster.ErrIncompatible) || !strings.Contains(err.Error(), "downing") {
			w.Errorf("join with another strategy: %v, want ErrIncompatible about downing", err)
		}
		if !w.logged("join: settings differ from those") {
			w.Error("the different settings were not logged")
		}
	})
}

func TestJoinThroughAnyMember(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.seeds = nil
		a, b := w.start("a"), w.start("b")
		w.sleep(time.Minute)
		if a.State().Joined {
			w.Error("a node without seeds has joined")
		}
		if err := a.JoinVia(w.Context(), "no name"); !errors.Is(err, cluster.ErrInvalid) {
			w.Errorf("JoinVia: %v, want ErrInvalid", err)
		}
		must(w.T, a.JoinVia(w.Context(), "a"))
		must(w.T, b.JoinVia(w.Context(), "a"))
		w.allUp(a, b)
		if _, err := cluster.Join(w.Context(), w.config("c")); !errors.Is(err, cluster.ErrInvalid) {
			w.Errorf("Join without seeds: %v, want ErrInvalid", err)
		}
	})
}

// The node joins only after SetVersion.
func TestVersionPending(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		a := w.cluster("a")[0]
		b := w.start("b", func(c *cluster.Config) { c.VersionPending = true })
		w.sleep(time.Minute)
		if b.State().Joined {
			w.Error("the node joined without a version")
		}
		if err := b.SetVersion(w.Context(), "1..2"); !errors.Is(err, cluster.ErrInvalid) {
			w.Errorf("SetVersion: %v, want ErrInvalid", err)
		}
		must(w.T, b.SetVersion(w.Context(), "2.0"))
		w.allUp(a, b)
		if m, _ := a.State().Member(b.Self()); m.Version.String() != "2.0" {
			w.Errorf("the member has version %v, want 2.0", m.Version)
		}
	})
}

// While the broker is unavailable no node founds a cluster, because another cluster may exist.
func TestBrokerUnavailableAtStart(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var back []func()
		for _, name := range []string{"a", "b", "c"} {
			back = append(back, w.network.Disconnect(name, errors.New("no broker")))
		}
		nodes := []*cluster.Node{w.start("a"), w.start("b"), w.start("c")}
		w.sleep(2 * time.Minute)
		for _, n := range nodes {
			if n.State().Joined {
				w.Errorf("%v has joined without a broker", n.Self())
			}
			if err := n.Ready(); !errors.Is(err, cluster.ErrNotMember) {
				w.Errorf("Ready: %v, want ErrNotMember", err)
			}
		}
		for _, f := range back {
			f()
		}
		w.allUp(nodes...)
	})
}

// TestLeaveUnknown lets a node leave that only a member knows that is disconnected then. The node
// ends in order, and its error and its liveness report that it has left.
func TestLeaveUnknown(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		w.network.CutOneWay([]string{"c"}, []string{"a", "b"}) // no other member hears of the new node
		d := w.start("d", func(c *cluster.Config) { c.Seeds = []string{"c"} })
		w.until(d, func(s *cluster.State) bool { return s.Joined })
		w.network.Partition([]string{"c"}, []string{"a", "b", "d"})
		if s := d.State(); s.Status(d.Self()) == cluster.Up {
			w.Fatal("the node was Up before it left")
		}
		if err := d.Live(); err != nil {
			w.Errorf("Live of a node that runs: %v", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
		defer cancel()
		must(w.T, d.Leave(ctx, d.Self()))
		w.wantEnded(d, cluster.ErrLeft)
		if err := d.Live(); !errors.Is(err, cluster.ErrLeft) {
			w.Errorf("Live of a node that has left: %v, want ErrLeft", err)
		}
		w.wantEnded(w.nodes["c"], cluster.ErrDowned)
		w.allUp(nodes[:2]...)
	})
}
