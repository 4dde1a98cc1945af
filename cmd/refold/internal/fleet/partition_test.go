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
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/nats"
)

// nodes returns the users of a server.
func nodes(t *testing.T, names []string) []natstest.User {
	t.Helper()
	users, err := natstest.Nodes(clusterName, names...)
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// leases returns where the nodes keep leases, a server by itself that no split reaches.
func leases(t *testing.T) nats.Access {
	t.Helper()
	return natstest.Start(t, natstest.Config{JetStream: true, Users: []natstest.User{{Name: "lease"}}}).Access(t, "lease")
}

// In a split the side that the strategy names survives, and the others end themselves; never do two
// instances of a singleton run.
func TestSplits(t *testing.T) {
	t.Parallel()
	type split = func(*natstest.Split)
	cut := func(s *natstest.Split) { s.Cut() }
	for _, c := range []struct {
		name        string
		settings    downing.Settings
		left, right []string // connected to one server and the other
		split       split
		survivors   []string
		soak        bool
	}{
		{
			name: "keep-majority", split: cut,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-majority, equal sides", split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d"}, survivors: []string{"a", "b"},
		},
		{
			name: "keep-majority, held back", split: func(s *natstest.Split) { s.Freeze() }, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-majority, one way is lost", split: func(s *natstest.Split) { s.Drop(natstest.AToB) },
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-majority, the other way is lost", split: func(s *natstest.Split) { s.Drop(natstest.BToA) }, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-majority, one way stalls", split: func(s *natstest.Split) { s.Stall(natstest.AToB) }, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "keep-oldest", settings: downing.Settings{Strategy: downing.KeepOldest}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"a", "b"},
		},
		{
			name: "keep-oldest, which is alone", settings: downing.Settings{Strategy: downing.KeepOldest}, split: cut, soak: true,
			left: []string{"a"}, right: []string{"b", "c"}, survivors: []string{"b", "c"},
		},
		{
			name: "static-quorum", settings: downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
		{
			name: "static-quorum, which nobody has", settings: downing.Settings{Strategy: downing.StaticQuorum, QuorumSize: 3}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c", "d"},
		},
		{
			name: "down-all", settings: downing.Settings{Strategy: downing.DownAll}, split: cut, soak: true,
			left: []string{"a", "b"}, right: []string{"c"},
		},
		{
			// The smaller side may find out long before the larger one does on a busy machine.
			name: "lease-majority", settings: downing.Settings{Strategy: downing.LeaseMajority, MinorityDelay: 15 * time.Second}, split: cut,
			left: []string{"a", "b"}, right: []string{"c", "d", "e"}, survivors: []string{"c", "d", "e"},
		},
	} {
		if c.soak && !soaking() {
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

// A node whose link to the broker is lost stops hosting before another starts, and ends as soon as
// it hears that it was given up.
func TestALostLink(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	server := natstest.Start(t, natstest.Config{Users: nodes(t, names)})
	proxy := tcpproxy.Start(t, server.Addr())
	access := map[string]nats.Access{"a": server.AccessVia(t, proxy, "a"), "b": server.Access(t, "b"), "c": server.Access(t, "c")}
	s := newScene(t, downing.Settings{}, access, nats.Access{})
	proxy.SetDown(true)
	s.until("another node runs the singleton", func() bool { return s.hostedBy("b", "c") })
	s.alone(0)
	s.until("the lost node hosts nothing", func() bool { v := s.views["a"]; return !v.Connected && v.Suspended && !s.hostedBy("a") })
	if s.ended["a"] != "" {
		t.Errorf("the lost node has ended %q", s.ended["a"])
	}
	proxy.SetDown(false)
	s.survive("b", "c")
}

// One node that does not hear another one is no partition: both are indirectly connected, and downed.
func TestADeafNode(t *testing.T) {
	t.Parallel()
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

// When the broker is away all nodes stop hosting, and are the same members when it is back.
func TestABrokerThatIsAway(t *testing.T) {
	t.Parallel()
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
	if soaking() {
		s.during(time.Minute)
	}
	s.until("nothing is hosted", func() bool { return len(s.hosts()) == 0 })
	server.Restart()
	s.until("the singleton runs where it did", func() bool { return slices.Equal(s.hosts(), []string{"a"}) })
	s.until("all agree", func() bool { return s.agree(names...) })
	for _, name := range names {
		for _, m := range s.views[name].Members {
			if before[m.Node.Name] != m.Node {
				t.Errorf("%s sees %v, it was %v before", name, m.Node, before[m.Node.Name])
			}
		}
	}
	if len(s.ended) > 0 {
		t.Errorf("ended have %v", s.ended)
	}
	s.alone(0)
}

// A node that is stopped by SIGSTOP for so long that it is given up hosts nothing any more as soon
// as it runs again.
func TestAPausedNode(t *testing.T) {
	t.Parallel()
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
	t.Logf("both ran for %v", overlap)
	if soaking() && overlap > time.Second {
		t.Errorf("the paused node hosted for %v after it ran again", overlap)
	}
	s.until("the paused node has ended", func() bool { return s.ended["a"] != "" })
	s.until("the others go on", func() bool { return s.agree("b", "c") })
}
