// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/nats"
)

// nodes returns the users of a NATS server, one for each node.
func nodes(t *testing.T, names []string) []natstest.User {
	t.Helper()
	users, err := natstest.Nodes(clusterName, names...)
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// leases returns the access to a separate NATS server for leases, which no partition affects.
func leases(t *testing.T) nats.Access {
	t.Helper()
	access := natstest.Start(t, natstest.Config{JetStream: true, Users: []natstest.User{{Name: "lease"}}}).Access(t, "lease")
	if err := nats.CreateLeaseBucket(t.Context(), nats.LeasesConfig{Access: access, Cluster: clusterName, Name: "lease", Timeout: leaseTimeout}); err != nil {
		t.Fatal(err)
	}
	return access
}

// After a partition, the side that the strategy selects survives and the nodes of the other side
// shut down. Two instances of a singleton never run at the same time.
func TestPartition(t *testing.T) {
	t.Parallel()
	if quick(t) {
		return
	}
	type split = func(*natstest.Split)
	cut := func(s *natstest.Split) { s.Cut() }
	for _, c := range []struct {
		name        string
		settings    downing.Settings
		left, right []string // nodes connected to the first server, and nodes connected to the second one
		split       split
		survivors   []string
		soak        bool
	}{
		{
			name: "keep-majority", split: cut,
			left: []string{"a"}, right: []string{"b", "c"}, survivors: []string{"b", "c"},
		},
		{
			name: "keep-majority, five nodes", split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-majority, equal sides", split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d"}, survivors: []string{"a", "b"},
		},
		{
			name: "keep-majority, all messages stall", split: func(s *natstest.Split) { s.Freeze() }, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-majority, messages to the majority are lost", split: func(s *natstest.Split) { s.Drop(natstest.AToB) },
			left: []string{"a"}, right: []string{"b", "c"}, survivors: []string{"b", "c"},
		},
		{
			name: "keep-majority, messages to the minority are lost", split: func(s *natstest.Split) { s.Drop(natstest.BToA) }, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-majority, messages to the majority stall", split: func(s *natstest.Split) { s.Stall(natstest.AToB) }, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-oldest", settings: downing.Settings{Strategy: downing.KeepOldest}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"a", "b"},
		},
		{
			name: "keep-oldest, the oldest is alone", settings: downing.Settings{Strategy: downing.KeepOldest}, split: cut, soak: true,
			left: []string{"a"}, right: []string{"b", "c"}, survivors: []string{"b", "c"},
		},
		{
			name: "static-quorum", settings: downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "static-quorum, no side has a quorum", settings: downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d"},
		},
		{
			name: "down-all", settings: downing.Settings{Strategy: downing.DownAll}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c"},
		},
		{
			// On a busy machine the minority may detect the partition long before the majority.
			name: "lease-majority", settings: downing.Settings{Strategy: downing.LeaseMajority, MinorityDelay: 15 * time.Second}, split: cut,
			left: []string{"a"}, right: []string{"b", "c"}, survivors: []string{"b", "c"},
		},
	} {
		if c.soak && !effort.Soak() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			split := natstest.StartSplit(t, natstest.Config{Users: nodes(t, slices.Concat(c.left, c.right))})
			access := map[string]nats.Access{}
			for _, name := range c.left {
				access[name] = split.A.Access(t, name)
			}
			for _, name := range c.right {
				access[name] = split.B.Access(t, name)
			}
			var store nats.Access
			if c.settings.Strategy == downing.LeaseMajority {
				store = leases(t)
			}
			s := newScene(t, c.settings, access, store)
			c.split(split)
			s.survive(c.survivors...)
		})
	}
}

// A node that loses its connection to the broker stops hosting before another node starts to host.
// The node ends when it is connected again and receives the state in which it is Down.
func TestNodeWithoutBroker(t *testing.T) {
	t.Parallel()
	if quick(t) {
		return
	}
	names := []string{"a", "b", "c"}
	server := natstest.Start(t, natstest.Config{Users: nodes(t, names)})
	proxy := tcpproxy.Start(t, server.Addr())
	access := map[string]nats.Access{"a": server.AccessVia(t, proxy, "a"), "b": server.Access(t, "b"), "c": server.Access(t, "c")}
	s := newScene(t, downing.Settings{}, access, nats.Access{})
	proxy.SetDown(true)
	s.until("another node runs the singleton", func() bool { return s.hostedBy("b", "c") })
	s.alone(0)
	s.until("the disconnected node hosts nothing", func() bool { v := s.views["a"]; return !v.Connected && v.Suspended && !s.hostedBy("a") })
	if s.ended["a"] != "" {
		t.Errorf("the disconnected node has ended: %s, want a suspended node", s.ended["a"])
	}
	proxy.SetDown(false)
	s.survive("b", "c")
}

// If one node receives no messages from another one, the cluster is not partitioned. Both nodes are
// indirectly connected and are downed.
func TestIndirectlyConnectedNodes(t *testing.T) {
	t.Parallel()
	if quick(t) {
		return
	}
	names := []string{"a", "b", "c", "d", "e"}
	server := natstest.Start(t, natstest.Config{Users: nodes(t, names)})
	access := map[string]nats.Access{}
	for _, name := range names {
		access[name] = server.Access(t, name)
	}
	s := newScene(t, downing.Settings{}, access, nats.Access{})
	server.Mute("b", "d")
	s.survive("a", "c", "e")
}

// While the broker is down, no node hosts anything. After the restart of the broker the members are
// the same as before.
func TestBrokerDown(t *testing.T) {
	t.Parallel()
	if quick(t) {
		return
	}
	names := []string{"a", "b", "c"}
	server := natstest.Start(t, natstest.Config{Users: nodes(t, names)})
	access := map[string]nats.Access{}
	for _, name := range names {
		access[name] = server.Access(t, name)
	}
	s := newScene(t, downing.Settings{}, access, nats.Access{})
	before := map[string]identity.Node{}
	for _, name := range names {
		before[name] = s.ids[name]
	}
	server.Kill()
	if effort.Soak() {
		s.during(time.Minute)
	}
	s.until("nothing is hosted", func() bool { return len(s.hosts()) == 0 })
	server.Restart()
	s.until("the singleton runs on the same node as before", func() bool { return slices.Equal(s.hosts(), []string{"a"}) })
	s.until("all nodes agree", func() bool { return s.agree(names...) })
	for _, name := range names {
		for _, m := range s.views[name].Members {
			if before[m.Node.Name] != m.Node {
				t.Errorf("node %s has member %v, want %v as before the restart", name, m.Node, before[m.Node.Name])
			}
		}
	}
	if len(s.ended) > 0 {
		t.Errorf("nodes have ended: %v, want none after the restart of the broker", s.ended)
	}
	s.alone(0)
}

// A node that is suspended by SIGSTOP until it is downed stops hosting when it continues.
func TestPausedNode(t *testing.T) {
	t.Parallel()
	if quick(t) {
		return
	}
	names := []string{"a", "b", "c"}
	server := natstest.Start(t, natstest.Config{Users: nodes(t, names)})
	access := map[string]nats.Access{}
	for _, name := range names {
		access[name] = server.Access(t, name)
	}
	s := newScene(t, downing.Settings{}, access, nats.Access{})
	if err := s.fleet.Signal("a", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.until("another node runs the singleton", func() bool { return s.hostedBy("b", "c") })
	resumed := time.Now()
	if err := s.fleet.Signal("a", syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.until("the paused node hosts nothing", func() bool { return !s.hostedBy("a") })
	overlap := s.spans[0].to.Sub(resumed)
	t.Logf("both instances ran for %v", overlap)
	if effort.Soak() && overlap > time.Second {
		t.Errorf("the paused node hosted for %v after it continued, want at most 1s", overlap)
	}
	s.until("the paused node has ended", func() bool { return s.ended["a"] != "" })
	s.until("the other nodes agree", func() bool { return s.agree("b", "c") })
}
