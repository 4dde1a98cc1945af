// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/plugins/inmem"
)

// The side that the strategy chooses survives, and the other nodes end. A singleton never has two
// instances.
func TestPartition(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings downing.Settings
		survive  []string // of a to e; a and b are partitioned from c to e
	}{
		"keep-majority":                {downing.Settings{}, []string{"c", "d", "e"}},
		"static-quorum":                {downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3}, []string{"c", "d", "e"}},
		"static-quorum of all but one": {downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 4}, nil},
		"keep-oldest":                  {downing.Settings{Strategy: downing.KeepOldest}, []string{"a", "b"}},
		"down-all":                     {downing.Settings{Strategy: downing.DownAll}, nil},
		"lease-majority":               {downing.Settings{Strategy: downing.LeaseMajority}, []string{"c", "d", "e"}},
		"off: an operator decides":     {downing.Settings{Strategy: downing.Off}, []string{"a", "b", "c", "d", "e"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world) {
				leases := inmem.NewLeases(30 * time.Second)
				nodes := w.clusterWith(func(c *cluster.Config) { c.Downing, c.Leases = test.settings, leases }, "a", "b", "c", "d", "e")
				o := &instanceCounter{}
				o.host(w.T, nodes...)
				o.await(w.T, "a")
				w.network.Partition([]string{"a", "b"}, []string{"c", "d", "e"})
				var left []*cluster.Node
				for _, name := range test.survive {
					left = append(left, w.nodes[name])
				}
				for _, n := range nodes {
					if len(left) < len(nodes) && !slices.Contains(test.survive, n.Self().Name) {
						w.wantEnded(n, cluster.ErrDowned)
					}
				}
				w.sleep(2 * time.Minute)
				if len(left) == len(nodes) {
					for _, n := range nodes {
						if s := n.State(); len(s.Members) != 5 || len(s.Unreachable) < 2 {
							w.Errorf("%v: %d members, %d unreachable, want 5 members and at least 2 unreachable", n.Self(), len(s.Members), len(s.Unreachable))
						}
					}
					return
				}
				if len(left) > 0 {
					w.allUp(left...)
					o.await(w.T, left[0].Self().Name)
				}
				o.runs(w.T)
			})
		})
	}
}

// The node that holds the lease from an earlier decision decides, even if another node is the
// leader.
func TestLeaseOwnerDecides(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		leases := inmem.NewLeases(30 * time.Second)
		settings := func(c *cluster.Config) {
			c.Downing, c.Leases = downing.Settings{Strategy: downing.LeaseMajority, StableAfter: 7 * time.Second}, leases
		}
		w.seeds = []string{"b"}
		nodes := w.clusterWith(settings, "b", "c", "d", "e")
		heal := w.network.Partition([]string{"b", "c", "d"}, []string{"e"})
		w.wantEnded(nodes[3], cluster.ErrDowned)
		w.allUp(nodes[:3]...)
		heal()
		left := append(nodes[:2:2], w.start("a", settings))
		w.allUp(append(left, nodes[2])...)
		w.network.Partition([]string{"a", "b", "c"}, []string{"d"})
		w.wantEnded(nodes[2], cluster.ErrDowned)
		w.allUp(left...)
	})
}

// A partition in one direction is resolved: members that only some members can reach are downed.
func TestOneWayPartition(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c", "d", "e")
		o := &instanceCounter{}
		o.host(w.T, nodes...)
		w.network.CutOneWay([]string{"a"}, []string{"b", "c", "d", "e"})
		w.wantEnded(nodes[0], cluster.ErrDowned)
		w.allUp(nodes[1:]...)
		w.sleep(time.Minute)
		if where := o.runs(w.T); where == "" || where == "a" {
			w.Errorf("the singleton runs on %q, want a node other than a", where)
		}
	})
}

// All nodes lose the broker for a minute. No member is suspected, singletons stop in time, and
// requests fail at once. Afterwards all members are the same as before.
func TestBrokerOutage(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		o := &instanceCounter{}
		o.host(w.T, nodes...)
		o.await(w.T, "a")
		p := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "one"})
		_, err := p.Ask(w.Context(), []byte("?"))
		must(w.T, err)
		before := nodes[0].State().Members
		var back []func()
		for _, n := range nodes {
			back = append(back, w.network.Disconnect(n.Self().Name, errors.New("no broker")))
		}
		w.sleep(5 * time.Second)
		for _, n := range nodes {
			if err = n.Ready(); !errors.Is(err, cluster.ErrDisconnected) {
				w.Errorf("Ready during the outage: %v, want ErrDisconnected", err)
			}
			must(w.T, n.Live())
		}
		w.sleep(20 * time.Second)
		if where := o.runs(w.T); where != "" || !nodes[0].State().Suspended {
			w.Errorf("the singleton runs on %q and Suspended of a is %t, want no instance and true", where, nodes[0].State().Suspended)
		}
		if _, err = p.Ask(w.Context(), []byte("?")); !errors.Is(err, cluster.ErrDisconnected) {
			w.Errorf("Ask during the outage: %v, want ErrDisconnected", err)
		}
		w.sleep(35 * time.Second)
		for _, f := range back {
			f()
		}
		for _, n := range nodes {
			w.until(n, func(s *cluster.State) bool { return s.Connected && !s.Suspended })
		}
		w.allUp(nodes...)
		o.await(w.T, "a")
		for i, m := range nodes[2].State().Members {
			if m.Node != before[i].Node || m.UpNumber != before[i].UpNumber {
				w.Errorf("member %d is %v with up number %d, want %v with %d", i, m.Node, m.UpNumber, before[i].Node, before[i].UpNumber)
			}
		}
		_, err = p.Ask(w.Context(), []byte("?"))
		must(w.T, err)
		for _, n := range nodes {
			must(w.T, n.Ready())
		}
	})
}

// One of three nodes loses its link. It stops hosting before another node starts the singleton. The
// other nodes down it, and it ends when its link is restored.
func TestDisconnectedNode(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b", "c")
		o := &instanceCounter{}
		o.host(w.T, nodes...)
		o.await(w.T, "a")
		back := w.network.Disconnect("a", errors.New("cable pulled"))
		o.await(w.T, "")
		w.allUp(nodes[1:]...)
		for o.started() < 2 {
			w.sleep(time.Second)
		}
		if where := o.runs(w.T); where == "a" || where == "" {
			w.Errorf("the singleton runs on %q, want a node other than a", where)
		}
		back()
		w.wantEnded(nodes[0], cluster.ErrDowned)
		w.allUp(nodes[1:]...)
		o.runs(w.T)
	})
}

// A request that is in flight when the node is suspended fails at once.
func TestAskEndsWithSuspension(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		must(w.T, nodes[0].Singleton(w.Context(), cluster.Singleton{Name: "mute", Run: (&unresponsive{}).run}))
		known := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "mute"})
		unknown := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "nobody"})
		asked := make(chan error, 2)
		for _, p := range []*cluster.Proxy{known, unknown} {
			go func() {
				_, err := p.Ask(w.Context(), nil)
				asked <- err
			}()
		}
		w.sleep(5 * time.Second)
		back := w.network.Disconnect("b", errors.New("cable pulled"))
		for range 2 {
			if err := <-asked; !errors.Is(err, cluster.ErrDisconnected) {
				w.Errorf("Ask in flight: %v, want ErrDisconnected", err)
			}
		}
		synctest.Wait()
		if !nodes[1].State().Suspended {
			w.Error("the node is not suspended")
		}
		for _, p := range []*cluster.Proxy{known, unknown} {
			if _, err := p.Ask(w.Context(), nil); !errors.Is(err, cluster.ErrDisconnected) {
				w.Errorf("Ask while suspended: %v, want ErrDisconnected", err)
			}
		}
		back()
	})
}
