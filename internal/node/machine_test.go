// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/splitbrain"
)

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	valid := func() node.Config {
		return node.Config{Cluster: "test", Downing: splitbrain.Settings{StableAfter: 5 * time.Second}}
	}
	for _, c := range []struct {
		name   string
		change func(*node.Config)
		want   string
	}{
		{"no cluster", func(c *node.Config) { c.Cluster = "" }, "Config.Cluster"},
		{"exit timeout", func(c *node.Config) { c.ExitTimeout = -1 }, "Config.ExitTimeout"},
		{"downing", func(c *node.Config) { c.Downing.QuorumSize = 3 }, "Config.Downing.QuorumSize"},
		{"reserved key", func(c *node.Config) { c.Membership.Check = []membership.Setting{{Key: "downing"}} }, `"downing"`},
		{"undecided too long", func(c *node.Config) { c.Membership.Settings.UndecidedAfter = 10 * time.Second }, "UndecidedAfter"},
		{"undecided before a decision", func(c *node.Config) { c.Membership.Settings.UndecidedAfter = 5 * time.Second }, "UndecidedAfter"},
		{"suspended too late", func(c *node.Config) { c.Membership.Settings.SuspendAfter = 10 * time.Second }, "SuspendAfter"},
		{"undecided too long for small clusters", func(c *node.Config) { c.Downing.StableAfter, c.Membership.Settings.UndecidedAfter = 0, 25*time.Second }, "UndecidedAfter"},
		{"undecided before a decision of large clusters", func(c *node.Config) { c.Downing.StableAfter, c.Membership.Settings.UndecidedAfter = 0, 9*time.Second }, "UndecidedAfter"},
		{"no self", func(*node.Config) {}, "Config.Membership.Self"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			c.change(&cfg)
			if _, err := node.New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New: %v, want an error about %s", err, c.want)
			}
		})
	}
}

func TestSuspensionDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		downing splitbrain.Settings
		members int
		want    time.Duration // SuspendAfter
		open    time.Duration // UndecidedAfter
		ends    time.Duration // GiveUpAfter
	}{
		{"stable-after", splitbrain.Settings{StableAfter: 7 * time.Second}, 100, 7 * time.Second, 10500 * time.Millisecond, 26 * time.Second},
		{"default", splitbrain.Settings{}, 100, 20 * time.Second, 30 * time.Second, 52 * time.Second},
		{"default of a small cluster", splitbrain.Settings{}, 3, 5 * time.Second, 7500 * time.Millisecond, 22 * time.Second},
		{"no margin", splitbrain.Settings{StableAfter: 7 * time.Second, RemovalMargin: -1}, 3, 3 * time.Second, 0, 26 * time.Second},
		{"shorter than the pause", splitbrain.Settings{StableAfter: time.Second, RemovalMargin: 4 * time.Second}, 3, 3 * time.Second, 3 * time.Second, 14 * time.Second},
		{"off", splitbrain.Settings{Strategy: downing.Off}, 3, 20 * time.Second, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newWorld(t).add("a", 1, func(cfg *node.Config) { cfg.Downing = c.downing })
			want := membership.Limits{SuspendAfter: c.want, UndecidedAfter: c.open, LeavingUndecidedAfter: b.RemovalMargin(c.members) / 2, GiveUpAfter: c.ends}
			if got := b.Config().Membership.Limits(c.members); got != want {
				t.Errorf("the limits are %+v, want %+v", got, want)
			}
		})
	}
}

func TestJoinChecksDowning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cluster(2, nil)
	c := w.add("c", 3, func(cfg *node.Config) { cfg.Downing.StableAfter = 6 * time.Second })
	c.step(node.Membership{Input: membership.JoinSeeds{Seeds: []string{"a", "b"}}})
	w.until("the third node stops", c.Stopped)
	if last := c.life[len(c.life)-1]; last.Reason != membership.Incompatible {
		t.Errorf("the third node stopped because of %v, want Incompatible", last.Reason)
	}
}

// The resolver of the leader downs a crashed node. Its singleton starts on another node after the
// removal margin.
func TestCrashedHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(3, nil)
	for _, b := range nodes {
		b.host(singleton.Config{Name: "one"})
	}
	w.until("an instance runs", func() bool { return len(w.hosts("one")) > 0 })
	if got := w.hosts("one"); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("the instance runs on %v, want a", got)
	}
	nodes[0].dead = true
	w.until("a is removed", func() bool { return len(nodes[1].View().Members) == 2 })
	removed := w.now
	w.until("an instance runs again", func() bool { return len(w.hosts("one")) > 0 })
	if got := w.hosts("one"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the instance runs on %v, want b", got)
	}
	if margin := w.now - removed; margin < 4*time.Second { // c may have removed a a little earlier
		t.Errorf("the instance started %v after the removal, want at least 4s", margin)
	}
	if nodes[1].hasLife(membership.Suspended) || nodes[2].hasLife(membership.Suspended) {
		t.Error("a surviving node was suspended although it decided in time")
	}
}

// TestCrashLoop lets a process join under ever new names and crash before it is Up, several times
// within StableAfter. The members of the cluster down each of these nodes, and neither end nor stop
// hosting.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		members int
		every   time.Duration
	}{{3, 10 * time.Second}, {3, 15 * time.Second}, {3, 20 * time.Second}, {5, 10 * time.Second}, {5, 20 * time.Second}} {
		t.Run(fmt.Sprint(c.members, " members, every ", c.every), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stable := func(cfg *node.Config) { cfg.Downing.StableAfter = 20 * time.Second }
			nodes := w.cluster(c.members, stable)
			nodes[0].host(singleton.Config{Name: "one"})
			for i := range uint64(30) {
				x := w.add(fmt.Sprintf("x%02d", i), 100+i, stable)
				x.step(node.Membership{Input: membership.JoinNode{Name: "b"}})
				for end := w.now + 500*time.Millisecond; w.now < end && len(x.View().Members) == 0; {
					w.run(10 * time.Millisecond)
				}
				x.dead = true
				w.run(c.every)
			}
			w.until("the crashed nodes are removed", func() bool { return len(nodes[0].View().Members) == c.members })
			for _, n := range nodes {
				// At a higher rate, nodes that crashed before the leader noticed it become Up, and
				// their reachability counts.
				if n.Stopped() || n.hasLife(membership.Downed) || c.every == 20*time.Second && n.hasLife(membership.Suspended) {
					t.Errorf("life events of %v: %v, want neither Downed nor Suspended", n.self, n.life)
				}
			}
			w.until("the singleton runs", func() bool { return nodes[0].runs("one") })
		})
	}
}

// A node without a link stops its singletons before other nodes start them. When its link is
// restored it ends, because it was downed.
func TestLostLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(3, nil)
	for _, b := range nodes {
		b.host(singleton.Config{})
	}
	w.until("the instance runs on a", func() bool { return nodes[0].runs("singleton") })
	w.isolate(nodes[0], true)
	w.until("the instance runs on another node", func() bool {
		if len(w.hosts("singleton")) > 1 {
			t.Fatalf("instances run on %v at the same time", w.hosts("singleton"))
		}
		return nodes[1].runs("singleton")
	})
	if !nodes[0].hasLife(membership.Suspended) || nodes[0].hasLife(membership.Downed) {
		t.Errorf("life events of the disconnected node: %v, want Suspended and not Downed", nodes[0].life)
	}
	if nodes[0].Counters().Downing[splitbrain.Decided] > 0 {
		t.Error("the disconnected node took a downing decision")
	}
	w.isolate(nodes[0], false)
	w.until("the disconnected node stops", nodes[0].Stopped)
}

// Two nodes are partitioned from the other nodes and also lose their links for a moment before they
// decide. The loss restarts their StableAfter, but not the StableAfter of the other nodes. So the
// two nodes must stop hosting before they decide.
func TestLostLinkBeforeDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(5, nil)
	for _, b := range nodes {
		b.host(singleton.Config{})
	}
	w.until("the instance runs on a", func() bool { return nodes[0].runs("singleton") })
	w.run(10 * time.Second)
	few, most := nodes[:2], nodes[2:]
	cut := func() {
		for _, a := range few {
			for _, b := range most {
				w.cut[[2]string{a.self.Name, b.self.Name}], w.cut[[2]string{b.self.Name, a.self.Name}] = true, true
			}
		}
	}
	cut()
	w.until("each side finds the other side unreachable", func() bool {
		return !slices.ContainsFunc(nodes, func(b *simNode) bool { return len(b.View().Unreachable) < 2 })
	})
	for range 2 {
		w.run(2500 * time.Millisecond)
		for _, a := range few {
			w.isolate(a, true)
		}
		w.run(3800 * time.Millisecond)
		clear(w.cut)
		cut()
	}
	w.until("the instance runs on another node", func() bool {
		if len(w.hosts("singleton")) > 1 {
			t.Fatalf("instances run on %v at the same time", w.hosts("singleton"))
		}
		return most[0].runs("singleton")
	})
	if few[0].hasLife(membership.Downed) {
		t.Errorf("the smaller side decided in time: life events %v", few[0].life)
	}
	for _, b := range most {
		if b.hasLife(membership.Suspended) {
			t.Errorf("%v was suspended although it decided in time: life events %v", b.self, b.life)
		}
	}
}

// A node that does not receive its own heartbeats starts no instance, even after the removal
// margin.
func TestLostLinkDuringMargin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(3, func(cfg *node.Config) {
		cfg.Downing.RemovalMargin = 7 * time.Second
		cfg.Membership.Settings.SuspendAfter = 10 * time.Second
	})
	for _, b := range nodes {
		b.host(singleton.Config{})
	}
	w.until("the instance runs on a", func() bool { return nodes[0].runs("singleton") })
	nodes[0].dead = true
	w.until("a is removed", func() bool { return len(nodes[1].View().Members) == 2 })
	w.run(2 * time.Second)
	w.isolate(nodes[1], true)
	w.run(7 * time.Second)
	nodes[1].host(singleton.Config{Name: "late"})
	if nodes[1].View().Connected || nodes[1].Suspended() || len(nodes[1].started) > 0 {
		t.Fatalf("connected %t, suspended %t, started %v, want a disconnected node that is not suspended and has started no instance", nodes[1].View().Connected, nodes[1].Suspended(), nodes[1].started)
	}
	w.isolate(nodes[1], false)
	w.until("both singletons run", func() bool { return nodes[1].runs("singleton") && nodes[1].runs("late") })
}

// An outage of the broker for a minute suspends the singleton, but removes no member.
func TestBrokerOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(3, nil)
	for _, b := range nodes {
		b.host(singleton.Config{})
	}
	w.until("the instance runs on a", func() bool { return nodes[0].runs("singleton") })
	for _, b := range nodes {
		w.isolate(b, true)
	}
	w.run(time.Minute)
	if got := w.hosts("singleton"); len(got) > 0 {
		t.Errorf("the instance still runs on %v after a minute without a broker", got)
	}
	clear(w.cut)
	w.until("the instance runs again", func() bool { return nodes[0].runs("singleton") })
	for _, b := range nodes {
		if b.up() != 3 || b.Stopped() {
			t.Errorf("%v has %d members up or has stopped, want 3 members", b.self, b.up())
		}
	}
}

// A node that was paused handles the pause before any other input. It therefore ignores the late
// answer of the lease store and starts no instance.
func TestLateAnswerToPausedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.leases["test-singleton-singleton"] = identity.Node{Name: "z", UID: 9}
	a := w.cluster(1, nil)[0]
	a.host(singleton.Config{UseLease: true})
	w.until("the node requests the lease", func() bool { return len(a.asked) > 0 })
	w.run(4900 * time.Millisecond)
	delete(w.leases, "test-singleton-singleton")
	asked := len(a.asked)
	w.now += time.Minute
	a.step(node.LeaseAnswer{Lease: "test-singleton-singleton", Held: true}) // no request is open
	if len(a.started) > 0 {
		t.Fatal("the late answer started an instance")
	}
	if !a.hasLife(membership.Disconnected) || !a.hasLife(membership.Suspended) {
		t.Errorf("life events of the node: %v, want Disconnected and Suspended", a.life)
	}
	w.until("the instance runs with the lease", func() bool { return a.runs("singleton") })
	if len(a.asked) == asked {
		t.Error("the instance started without a new request for the lease")
	}
}

// A leaving node hands over its singletons before it stops.
func TestLeaving(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(3, nil)
	for _, b := range nodes {
		b.host(singleton.Config{})
	}
	w.until("the instance runs on a", func() bool { return nodes[0].runs("singleton") })
	nodes[0].hold = true
	nodes[0].step(node.Membership{Input: membership.Leave{Node: nodes[0].self}})
	w.until("the instance is asked to stop", func() bool { return len(nodes[0].stopped) > 0 })
	w.run(5 * time.Second)
	if nodes[0].Stopped() || len(w.hosts("singleton")) != 1 {
		t.Fatalf("the leaving node did not wait for its singleton, which runs on %v", w.hosts("singleton"))
	}
	nodes[0].step(node.InstanceEnded{Instance: nodes[0].stopped[0]})
	w.until("the node stops", nodes[0].Stopped)
	if last := nodes[0].life[len(nodes[0].life)-1]; last.Reason != membership.Left {
		t.Errorf("the node stopped because of %v, want Left", last.Reason)
	}
	w.until("the instance runs on b", func() bool { return nodes[1].runs("singleton") })
}

// A singleton that does not end delays the exit of the node for a limited time.
func TestLeavingWithStuckSingleton(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(2, nil)
	for _, b := range nodes {
		b.host(singleton.Config{})
	}
	w.until("the instance runs on a", func() bool { return nodes[0].runs("singleton") })
	nodes[0].hold = true
	nodes[0].step(node.Membership{Input: membership.Leave{Node: nodes[0].self}})
	w.until("the node stops", nodes[0].Stopped)
	if nodes[0].Counters().ExitTimeouts != 1 || !slices.Contains(nodes[0].lines, "singleton: hand-over timed out") {
		t.Errorf("%d time-outs of hand-overs were counted and the log is %q, want one that is logged", nodes[0].Counters().ExitTimeouts, nodes[0].lines)
	}
	if nodes[0].Next() == node.Never {
		t.Error("Next is Never while an instance runs")
	}
	nodes[0].step(node.InstanceEnded{Instance: nodes[0].stopped[0]})
	if nodes[0].Next() != node.Never {
		t.Error("Next is not Never after the last instance has ended")
	}
}

// Messages for a singleton are forwarded to its node, which may be this node.
func TestForwarding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(2, nil)
	for _, b := range nodes {
		b.proxy(singleton.ProxyConfig{})
		b.step(node.Forward{Singleton: "singleton", Message: 1})
		b.step(node.Forward{Singleton: "other", Message: 2})
		if want := []node.Forward{{Singleton: "other", Message: 2}}; !slices.Equal(b.dropped, want) {
			t.Errorf("%v dropped %v, want only the message of the singleton without a proxy", b.self, b.dropped)
		}
	}
	for _, b := range nodes {
		b.host(singleton.Config{})
	}
	for _, b := range nodes {
		w.until("the message is forwarded", func() bool { return len(b.forwarded) > 0 })
		if want := (node.Forwarded{Forward: node.Forward{Singleton: "singleton", Message: 1}, To: nodes[0].self}); b.forwarded[0] != want {
			t.Errorf("%v forwarded %v, want message 1 to a", b.self, b.forwarded[0])
		}
		if at, known := b.Oldest("singleton"); at != nodes[0].self || !known {
			t.Errorf("Oldest on %v = %v, %v, want a, true", b.self, at, known)
		}
	}
}

// A proxy logs one warning about a singleton without an instance.
func TestSilentOldest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.cluster(1, nil)[0]
	a.proxy(singleton.ProxyConfig{Singleton: "x"})
	w.run(5 * time.Minute)
	n := 0
	for _, l := range a.lines {
		if l == "singleton: the oldest member does not confirm that it runs the instance" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the warning was logged %d times, want once", n)
	}
}

func TestLeaseMajority(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.cluster(2, func(c *node.Config) {
		c.Downing = splitbrain.Settings{Strategy: downing.LeaseMajority, StableAfter: 5 * time.Second}
	})
	nodes[1].dead = true
	w.until("the crashed node is removed", func() bool { return len(nodes[0].View().Members) == 1 })
	if w.leases["test-downing"] != nodes[0].self {
		t.Errorf("the leases are held by %v, want the survivor", w.leases)
	}
	w.until("the lease is released", func() bool { return w.leases["test-downing"].IsZero() })
}

// The owner of the lease decides although another node has become the leader.
func TestLeaseOwnerDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	add := func(name string, members int) *simNode {
		b := w.add(name, uint64(members), func(c *node.Config) {
			c.Downing = splitbrain.Settings{Strategy: downing.LeaseMajority, StableAfter: 5 * time.Second, ReleaseAfter: time.Minute}
		})
		b.step(node.Membership{Input: membership.JoinSeeds{Seeds: []string{"b"}}})
		w.until("the node is up", func() bool { return b.up() == members })
		return b
	}
	b, c, d := add("b", 1), add("c", 2), add("d", 3)
	d.dead = true
	w.until("d is removed", func() bool { return len(b.View().Members) == 2 })
	a := add("a", 3)
	c.dead = true
	w.until("c is removed", func() bool { return len(a.View().Members) == 2 || a.Counters().Downing[splitbrain.WithoutLease] > 0 })
	for nr, n := range []*simNode{a, b} {
		if owner := w.leases["test-downing"]; n.up() != 2 || owner != b.self || n.Counters().Downing[splitbrain.Decided] != uint64(2*nr) {
			t.Errorf("%v has %d members up and %d decisions, and %v holds the lease; want 2 members, %d decisions and %v", n.self, n.up(), n.Counters().Downing[splitbrain.Decided], owner, 2*nr, b.self)
		}
	}
}

func TestMessagesWithoutDestination(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.cluster(1, nil)[0]
	stranger := identity.Node{Name: "z", UID: 9}
	a.host(singleton.Config{})
	handOver := singleton.AppendMessage(nil, singleton.Message{Kind: singleton.HandOverToMe, Singleton: "none"})
	identify := singleton.AppendMessage(nil, singleton.Message{Kind: singleton.Identify, Singleton: "singleton"})
	for _, in := range []node.Received{
		{From: stranger, To: a.self, Kind: node.KindSingleton, Data: handOver},
		{From: stranger, To: identity.Node{Name: "a"}, Kind: node.KindSingleton, Data: handOver},
		{From: identity.Node{Name: "z"}, To: a.self, Kind: node.KindSingleton, Data: handOver},
		{From: stranger, To: a.self, Kind: node.KindForwarded, Data: handOver},
		{From: stranger, To: a.self, Kind: 250, Data: handOver},
		{From: stranger, To: a.self, Kind: node.KindSingleton, Data: identify},
		{From: a.self, To: a.self, Kind: node.KindSingleton, Data: handOver},
	} {
		before := a.Counters().Refused
		a.step(in)
		if got := a.Counters().Refused - before; got != 1 {
			t.Errorf("message to %v of kind %d from %v: %d were counted as refused, want 1", in.To, in.Kind, in.From, got)
		}
	}
	a.step(node.Received{From: a.self, To: a.self, Kind: node.KindSingleton, Data: []byte("garbage")})
	if a.Counters().Malformed != 1 {
		t.Error("the malformed message was not counted")
	}
}

func TestDuplicateNames(t *testing.T) {
	t.Parallel()
	a := newWorld(t).add("a", 1, nil)
	a.host(singleton.Config{})
	if _, err := a.Host(0, singleton.Config{Name: "singleton"}); err == nil {
		t.Error("Host accepted the same name twice")
	}
	a.proxy(singleton.ProxyConfig{})
	if _, err := a.Proxy(0, singleton.ProxyConfig{Singleton: "singleton"}); err == nil {
		t.Error("Proxy accepted the same name twice")
	}
	if _, err := a.Host(0, singleton.Config{Name: "x", MinRetries: -1}); err == nil {
		t.Error("Host accepted an invalid configuration")
	}
	if _, err := a.Proxy(0, singleton.ProxyConfig{Singleton: "x", BufferSize: 1 << 20}); err == nil {
		t.Error("Proxy accepted an invalid configuration")
	}
}

// TestBrokerOutageWithCrash has a broker outage during which one node crashes. The other nodes lost
// their links together, so they are the larger side whatever the crashed node has decided. With a
// lease the other nodes end, because the crashed node may have held the lease.
func TestBrokerOutageWithCrash(t *testing.T) {
	t.Parallel()
	for _, strategy := range []downing.Strategy{downing.KeepMajority, downing.LeaseMajority} {
		w := newWorld(t)
		nodes := w.cluster(3, func(c *node.Config) {
			c.Downing = splitbrain.Settings{Strategy: strategy, StableAfter: 5 * time.Second}
		})
		for _, b := range nodes {
			b.host(singleton.Config{})
		}
		w.until("the instance runs on a", func() bool { return nodes[0].runs("singleton") })
		for _, b := range nodes {
			w.isolate(b, true)
		}
		w.run(30 * time.Second)
		nodes[0].dead = true
		w.run(30 * time.Second)
		clear(w.cut)
		if strategy == downing.KeepMajority {
			w.until("the instance runs on b", func() bool { return nodes[1].runs("singleton") })
			if nodes[1].up() != 2 || nodes[2].up() != 2 {
				t.Errorf("%d and %d members are up, want 2 on both nodes", nodes[1].up(), nodes[2].up())
			}
			continue
		}
		w.until("both nodes have ended", func() bool { return nodes[1].Stopped() && nodes[2].Stopped() })
		ended := membership.Life{Kind: membership.Stopped, Reason: membership.WasDowned}
		for _, b := range nodes[1:] {
			if len(b.started) > 0 || b.Counters().Downing != nodes[0].Counters().Downing || !slices.Contains(b.life, ended) {
				t.Errorf("%v started %v, with the decisions %v and the life events %v; want no instance, no further decision, and the end as downed", b.self, b.started, b.Counters().Downing, b.life)
			}
		}
	}
}
