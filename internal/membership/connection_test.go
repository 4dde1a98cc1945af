// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// withGiveUp returns a machine with other members. The machine ends half a minute after its
// reconnection if no member confirms its membership. It stops hosting after half a minute without a
// decision.
func withGiveUp(t *testing.T, names ...string) *solo {
	t.Helper()
	s := founded(t, func(c *membership.Config) {
		c.Settings.UndecidedAfter, c.Settings.GiveUpAfter = 30*time.Second, 30*time.Second
	})
	s.add(names...)
	s.pass(15*time.Second, names...)
	s.forget()
	return s
}

// replyAs lets members with the same gossip reply to the last LivenessQuery of the machine.
func (s *solo) replyAs(a membership.Absence, names ...string) {
	s.t.Helper()
	nr := s.asked()
	for _, name := range names {
		s.recv(name, membership.LivenessReply{Nr: nr, Absence: a})
		s.recv(name, membership.Digests{Version: s.m.Gossip().Clock().Digest()})
	}
}

// cutFor disconnects the machine for a time.
func (s *solo) cutFor(d time.Duration, names ...string) {
	s.t.Helper()
	s.mute = true
	s.pass(d)
	s.mute = false
	s.pass(time.Second, names...)
	if !s.m.View().Connected {
		s.t.Fatal("the machine is not connected after the outage")
	}
}

func (s *solo) wantConnectivity(want membership.Connectivity, subject string) {
	s.t.Helper()
	if got := s.m.Connectivity(); got != want {
		s.t.Fatalf("%s: Connectivity = %v, want %v", subject, got, want)
	}
}

func TestConnectivity(t *testing.T) {
	t.Parallel()
	t.Run("a short time", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o")
		s.wantConnectivity(membership.Confirmed, "never disconnected")
		s.mute = true
		s.pass(10 * time.Second)
		s.wantConnectivity(membership.Isolated, "disconnected")
		s.cutFor(0)
		s.wantConnectivity(membership.Confirmed, "disconnected for too short a time to be downed")
	})
	for name, c := range map[string]struct {
		n, o membership.Absence
		want membership.Connectivity
	}{
		"together":                        {membership.AwayFromWell, membership.AwayFromWell, membership.LostTogether},
		"one disconnected later":          {membership.AwayFromWell, membership.Away, membership.Unconfirmed},
		"one stayed connected":            {membership.Present, membership.Away, membership.Confirmed},
		"one was connected and suspended": {membership.Away, membership.Halted, membership.Confirmed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withGiveUp(t, "n", "o", "p")
			s.cutFor(40*time.Second, "n", "o")
			s.wantConnectivity(membership.Unconfirmed, "no member has replied")
			s.lose("n", "o")
			s.replyAs(c.n, "n")
			s.replyAs(c.o, "o")
			s.wantConnectivity(c.want, "all reachable members have replied")
		})
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o")
		s.cutFor(40 * time.Second)
		s.wantConnectivity(membership.Unconfirmed, "the reachability is not known yet")
		s.pass(10 * time.Second)
		s.wantConnectivity(membership.LostTogether, "the node was disconnected together with all reachable members")
	})
	t.Run("one member does not reply", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o", "p")
		s.cutFor(40*time.Second, "n", "o")
		s.lose("n", "o")
		s.replyAs(membership.AwayFromWell, "n")
		s.wantConnectivity(membership.Unconfirmed, "o has not replied")
	})
	t.Run("one member became unreachable afterwards", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o", "p")
		s.cutFor(40*time.Second, "n", "o")
		s.lose("n", "o")
		s.replyAs(membership.Halted, "o")
		s.wantConnectivity(membership.Confirmed, "o was not disconnected")
		s.pass(10*time.Second, "n")
		s.wantConnectivity(membership.Unconfirmed, "o may have been downed since then")
	})
	t.Run("joining", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n")
		s.named("x", membership.Join{})
		s.cutFor(40*time.Second, "x")
		s.lose("x")
		s.replyAs(membership.Present, "x")
		s.wantConnectivity(membership.Unconfirmed, "a reply of a member that has just joined")
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o")
		s.cutFor(40 * time.Second)
		s.cutFor(10 * time.Second)
		s.pass(10 * time.Second)
		s.wantConnectivity(membership.Unconfirmed, "other members may have relied on the node in between")
	})
	t.Run("others became unreachable before", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o")
		s.lose("n")
		s.cutFor(40*time.Second, "o")
		for len(s.m.View().Unreachable) > 1 {
			s.pass(time.Second, "o")
		}
		s.replyAs(membership.AwayFromWell, "o")
		s.wantConnectivity(membership.Unconfirmed, "n and the other members may have downed o")
	})
	t.Run("suspended before", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o")
		s.lose("n")
		s.pass(31*time.Second, "n")
		s.suspended(true, "no decision")
		s.wantConnectivity(membership.Confirmed, "not disconnected")
		s.cutFor(40 * time.Second)
		s.wantConnectivity(membership.Unconfirmed, "disconnected while suspended")
	})
	t.Run("confirmed by a member", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n")
		s.cutFor(40*time.Second, "n")
		s.replyAs(membership.Present, "n")
		s.resumed(true, "n was not disconnected")
		s.wantConnectivity(membership.Confirmed, "the membership is confirmed")
		s.lose()
		s.wantConnectivity(membership.Confirmed, "members became unreachable later")
	})
}

// TestAbsence checks the absence that a node reports in a LivenessReply.
func TestAbsence(t *testing.T) {
	t.Parallel()
	wantAbsence := func(s *solo, want membership.Absence, subject string) {
		t.Helper()
		s.recv("n", membership.LivenessQuery{Nr: 1})
		if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 1, Absence: want}) {
			t.Errorf("%s: the reported absence is %v, want %v", subject, got, want)
		}
	}
	s := withGiveUp(t, "n", "o")
	wantAbsence(s, membership.Present, "never disconnected")
	s.do(membership.LinkLost{})
	wantAbsence(s, membership.Away, "disconnected")
	s.cutFor(10*time.Second, "n", "o")
	wantAbsence(s, membership.Present, "disconnected for a short time")

	s = withGiveUp(t, "n", "o")
	s.lose("n")
	s.pass(31*time.Second, "n")
	wantAbsence(s, membership.Halted, "no decision about o")
	s.cutFor(40*time.Second, "n")
	wantAbsence(s, membership.Away, "disconnected while o was missing")

	s = withGiveUp(t, "n", "o")
	s.cutFor(40*time.Second, "n", "o")
	wantAbsence(s, membership.AwayFromWell, "disconnected while no member was missing")
	s.cutFor(5*time.Second, "n", "o")
	wantAbsence(s, membership.Away, "disconnected twice")
}

// TestGiveUp checks that a node ends itself if it was disconnected for long and no member that
// stayed connected confirms its membership.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	back := func(t *testing.T, a membership.Absence) *solo {
		t.Helper()
		s := withGiveUp(t, "n", "o")
		s.cutFor(40*time.Second, "n")
		s.lose("n")
		s.replyAs(a, "n")
		return s
	}
	ended := func(s *solo, want bool, subject string) {
		s.t.Helper()
		if got := !s.m.Member(); got != want {
			s.t.Fatalf("%s: the node has ended: %t, want %t", subject, got, want)
		}
	}
	t.Run("no member can confirm", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.Away)
		s.pass(20*time.Second, "n")
		ended(s, false, "a member may still return")
		s.pass(20*time.Second, "n")
		ended(s, true, "no member has returned")
		if s.m.Counters().TimedOut[membership.TimeoutLiveness] != 1 || s.all.Life[len(s.all.Life)-1].Reason != membership.WasDowned {
			t.Errorf("time-outs %v and life events %v, want one TimeoutLiveness and WasDowned", s.m.Counters().TimedOut, s.all.Life)
		}
	})
	t.Run("no decision", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.AwayFromWell)
		s.pass(40*time.Second, "n")
		ended(s, true, "the reachable members may decide, but do not")
	})
	t.Run("the missing member is downed", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.AwayFromWell)
		s.do(membership.DownNode{Node: node("o")})
		s.pass(2*time.Second, "n")
		s.replyAs(membership.AwayFromWell, "n")
		s.resumed(true, "no member is missing")
		s.pass(40*time.Second, "n")
		ended(s, false, "the membership was confirmed")
	})
	t.Run("one member was not disconnected", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.Present)
		s.pass(5*time.Minute, "n")
		ended(s, false, "n may still decide")
	})
	t.Run("all reply", func(t *testing.T) {
		t.Parallel()
		s := withGiveUp(t, "n", "o")
		s.cutFor(40*time.Second, "n", "o")
		s.replyAs(membership.Away, "n", "o")
		s.resumed(true, "no member is missing")
		s.lose("n")
		s.pass(40*time.Second, "n")
		ended(s, false, "the membership was confirmed")
	})
	t.Run("disconnected again", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.Away)
		s.mute = true
		s.pass(time.Minute)
		ended(s, false, "disconnected")
		s.mute = false
		s.pass(20*time.Second, "n")
		ended(s, false, "reconnected a short time ago")
		s.pass(20*time.Second, "n")
		ended(s, true, "no member can confirm")
	})
	t.Run("without a limit", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o")
		s.pass(10*time.Minute, "n")
		ended(s, false, "an operator decides")
	})
}

// TestDownedPairReconnects downs one of three nodes, then another one, and the third continues
// alone. The first two reconnect while the third is paused. In their own view they are two of
// three.
func TestDownedPairReconnects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.settings.UndecidedAfter, w.settings.GiveUpAfter = 30*time.Second, 52*time.Second
	w.resolving(splitbrain.Settings{StableAfter: 20 * time.Second})
	hosts := w.join(names(3)...)
	w.up(time.Minute, hosts...)
	survivor, back := hosts[0], hosts[1:]
	back[1].offline = true
	// The second node is disconnected just before the decision about the first node, so that it
	// does not receive that decision.
	w.run(24 * time.Second)
	back[0].offline = true
	w.run(time.Minute)
	if !survivor.hosting() || len(survivor.m.Gossip().Members()) != 1 {
		t.Fatalf("the third node does not continue alone:\n%s", w.describe())
	}
	if m := back[0].m.Gossip().Member(back[1].node); m == nil || m.Status != up {
		t.Fatalf("the second node has received the decision:\n%s", w.describe())
	}
	survivor.pause()
	back[0].offline, back[1].offline = false, false
	w.until(2*time.Minute, func() bool {
		for _, h := range back {
			if h.hosting() {
				t.Fatalf("%v continues, want only the third node:\n%s", h.node, w.describe())
			}
		}
		return false
	})
	survivor.unpause()
	w.run(10 * time.Second)
	if !survivor.hosting() || !back[0].stopped(membership.WasDowned) || !back[1].stopped(membership.WasDowned) {
		t.Errorf("not exactly one node continues:\n%s", w.describe())
	}
}

// TestRestartJoinsQuickly checks that a restarted node becomes a member as soon as its previous
// incarnation is removed, or as soon as the seeds can admit it. The node does not wait for the next
// round of join requests.
func TestRestartJoinsQuickly(t *testing.T) {
	t.Parallel()
	restart := 10 * time.Second // membership.Settings.RetryJoinAfter
	for name, test := range map[string]struct {
		stays int // of three nodes
		gone  func(w *world, hosts []*host)
		most  time.Duration
	}{
		// 3 s until the previous incarnation counts as dead, and 1 s until the next check. 1 s each
		// for the removal by the leader, the next join request, the first gossip, and the change to
		// Up. The rest is gossip in between.
		"crashed": {2, func(_ *world, hosts []*host) { hosts[2].kill() }, restart - time.Second},
		"left": {2, func(w *world, hosts []*host) {
			hosts[2].do(membership.Leave{Node: hosts[2].node})
			if !w.until(time.Minute, func() bool { return hosts[2].stopped(membership.Left) }) {
				t.Fatal("the node did not leave in time")
			}
		}, restart - time.Second},
		"new node while the others are suspended": {3, func(w *world, _ []*host) {
			w.broker = true
			w.run(30 * time.Second)
			w.broker = false
		}, restart - time.Second},
	} {
		for seed := range uint64(20) {
			w := newWorld(t, seed)
			hosts := w.join(names(3)...)
			w.up(time.Minute, hosts...)
			test.gone(w, hosts)
			again := w.start(names(4)[test.stays])
			from := w.now
			again.do(membership.JoinSeeds{Seeds: names(2)})
			members := append(hosts[:test.stays:test.stays], again)
			if !w.until(time.Minute, func() bool { return w.agree(members...) }) || w.now-from > test.most {
				t.Errorf("%s, seed %d: the node is a member after %v, want at most %v:\n%s", name, seed, w.now-from, test.most, w.describe())
			}
		}
	}
}

// TestJoinThroughSuspendedNode checks that a suspended node admits no new node. A new incarnation
// of a member does not prove to the suspended node that the previous incarnation is dead. With such
// a proof the suspended node could continue alone while the rest of its cluster continues
// elsewhere.
func TestJoinThroughSuspendedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	hosts := w.join(names(2)...)
	w.up(time.Minute, hosts...)
	cut := hosts[1]
	cut.offline = true
	w.run(40 * time.Second)
	hosts[0].kill()
	cut.offline = false
	w.run(5 * time.Second)
	if !cut.m.Suspended() {
		t.Fatal("the node is not suspended after the outage")
	}
	again := w.start("node-000")
	again.do(membership.JoinSeeds{Seeds: names(2)})
	other := w.start("node-002")
	other.do(membership.JoinNode{Name: "node-001"})
	w.run(time.Minute)
	switch {
	case !cut.m.Suspended():
		t.Error("the node continues without a confirmation of its membership")
	case cut.m.Gossip().Member(hosts[0].node).Status != up:
		t.Error("the node downed another node without a confirmation of its own membership")
	case cut.m.Gossip().Member(again.node) != nil || cut.m.Gossip().Member(other.node) != nil:
		t.Error("the suspended node admitted another node")
	}
}

// TestSuspendedNodeIgnoresRestart checks that a suspended node downs no member whose name another
// process requested just before the disconnection.
func TestSuspendedNodeIgnoresRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	hosts := w.join(names(2)...)
	w.up(time.Minute, hosts...)
	cut := hosts[1]
	hosts[0].kill()
	again := w.start("node-000")
	again.do(membership.JoinSeeds{Seeds: names(2)})
	w.run(time.Second)
	cut.offline = true
	again.kill()
	w.run(40 * time.Second)
	cut.offline = false
	w.run(20 * time.Second)
	if m := cut.m.Gossip().Member(hosts[0].node); m == nil || m.Status != up {
		t.Errorf("the node downed another node without a confirmation of its own membership: %v", m)
	}
}
