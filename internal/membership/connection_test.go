// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// ending returns a machine with other members. It ends half a minute after its reconnection if no
// member confirms its membership, and stops hosting after half a minute without a decision.
func ending(t *testing.T, names ...string) *solo {
	t.Helper()
	s := founded(t, func(c *membership.Config) {
		c.Settings.UndecidedAfter, c.Settings.GiveUpAfter = 30*time.Second, 30*time.Second
	})
	s.add(names...)
	s.pass(15*time.Second, names...)
	s.forget()
	return s
}

// says makes members with the same gossip answer the last LivenessQuery of the machine.
func (s *solo) says(a membership.Absence, names ...string) {
	s.t.Helper()
	nr := s.asked()
	for _, name := range names {
		s.recv(name, membership.LivenessReply{Nr: nr, Absence: a})
		s.recv(name, membership.Digests{Version: s.m.Gossip().Clock().Digest()})
	}
}

// cutFor lets the machine not hear itself for a time.
func (s *solo) cutFor(d time.Duration, names ...string) {
	s.t.Helper()
	s.mute = true
	s.pass(d)
	s.mute = false
	s.pass(time.Second, names...)
	if !s.m.View().Connected {
		s.t.Fatal("it hears itself")
	}
}

func (s *solo) stands(want membership.Connectivity, subject string) {
	s.t.Helper()
	if got := s.m.Connectivity(); got != want {
		s.t.Fatalf("%s: it stands %v, want %v", subject, got, want)
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	t.Run("a short time", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.stands(membership.Confirmed, "it was never away")
		s.mute = true
		s.pass(10 * time.Second)
		s.stands(membership.Isolated, "it does not hear itself")
		s.cutFor(0)
		s.stands(membership.Confirmed, "no member can have downed it in so short a time")
	})
	for name, c := range map[string]struct {
		n, o membership.Absence
		want membership.Connectivity
	}{
		"together":                   {membership.AwayFromWell, membership.AwayFromWell, membership.LostTogether},
		"one of them went later":     {membership.AwayFromWell, membership.Away, membership.Unconfirmed},
		"one of them was there":      {membership.Present, membership.Away, membership.Confirmed},
		"one of them waited for all": {membership.Away, membership.Halted, membership.Confirmed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := ending(t, "n", "o", "p")
			s.cutFor(40*time.Second, "n", "o")
			s.stands(membership.Unconfirmed, "no member has answered")
			s.lose("n", "o")
			s.says(c.n, "n")
			s.says(c.o, "o")
			s.stands(c.want, "all that can be reached have answered")
		})
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.cutFor(40 * time.Second)
		s.stands(membership.Unconfirmed, "it is not known who can be reached")
		s.pass(10 * time.Second)
		s.stands(membership.LostTogether, "it is those who were away together")
	})
	t.Run("one member does not answer", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o", "p")
		s.cutFor(40*time.Second, "n", "o")
		s.lose("n", "o")
		s.says(membership.AwayFromWell, "n")
		s.stands(membership.Unconfirmed, "o has not answered")
	})
	t.Run("one member became unreachable afterwards", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o", "p")
		s.cutFor(40*time.Second, "n", "o")
		s.lose("n", "o")
		s.says(membership.Halted, "o")
		s.stands(membership.Confirmed, "o was not away")
		s.pass(10*time.Second, "n")
		s.stands(membership.Unconfirmed, "o may have been downed since then")
	})
	t.Run("joining", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n")
		s.named("x", membership.Join{})
		s.cutFor(40*time.Second, "x")
		s.lose("x")
		s.says(membership.Present, "x")
		s.stands(membership.Unconfirmed, "who has joined but now knows no more")
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.cutFor(40 * time.Second)
		s.cutFor(10 * time.Second)
		s.pass(10 * time.Second)
		s.stands(membership.Unconfirmed, "others may have counted on it in between")
	})
	t.Run("others went before", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.lose("n")
		s.cutFor(40*time.Second, "o")
		for len(s.m.View().Unreachable) > 1 {
			s.pass(time.Second, "o")
		}
		s.says(membership.AwayFromWell, "o")
		s.stands(membership.Unconfirmed, "n and the other members may have downed o")
	})
	t.Run("it had stopped hosting before", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.lose("n")
		s.pass(31*time.Second, "n")
		s.suspended(true, "no decision")
		s.stands(membership.Confirmed, "it was not away")
		s.cutFor(40 * time.Second)
		s.stands(membership.Unconfirmed, "it was")
	})
	t.Run("confirmed for", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n")
		s.cutFor(40*time.Second, "n")
		s.says(membership.Present, "n")
		s.resumed(true, "n was not away")
		s.stands(membership.Confirmed, "it is a member")
		s.lose()
		s.stands(membership.Confirmed, "members became unreachable later")
	})
}

// TestAbsence checks the absence that a node reports in a LivenessReply.
func TestAbsence(t *testing.T) {
	t.Parallel()
	says := func(s *solo, want membership.Absence, subject string) {
		t.Helper()
		s.recv("n", membership.LivenessQuery{Nr: 1})
		if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 1, Absence: want}) {
			t.Errorf("%s: the reported absence is %v, want %v", subject, got, want)
		}
	}
	s := ending(t, "n", "o")
	says(s, membership.Present, "it was not away")
	s.do(membership.LinkLost{})
	says(s, membership.Away, "it does not hear itself")
	s.cutFor(10*time.Second, "n", "o")
	says(s, membership.Present, "that was not for long")

	s = ending(t, "n", "o")
	s.lose("n")
	s.pass(31*time.Second, "n")
	says(s, membership.Halted, "no decision about o")
	s.cutFor(40*time.Second, "n")
	says(s, membership.Away, "it was away, and o was missing before")

	s = ending(t, "n", "o")
	s.cutFor(40*time.Second, "n", "o")
	says(s, membership.AwayFromWell, "it was disconnected, and no member was missing before")
	s.cutFor(5*time.Second, "n", "o")
	says(s, membership.Away, "it was away twice")
}

// TestGivingUp checks that a node ends itself if it was disconnected for long and no member that
// stayed connected confirms its membership.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	back := func(t *testing.T, a membership.Absence) *solo {
		t.Helper()
		s := ending(t, "n", "o")
		s.cutFor(40*time.Second, "n")
		s.lose("n")
		s.says(a, "n")
		return s
	}
	ended := func(s *solo, want bool, subject string) {
		s.t.Helper()
		if got := !s.m.Member(); got != want {
			s.t.Fatalf("%s: it has ended: %t", subject, got)
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
			t.Errorf("%v, %v", s.m.Counters().TimedOut, s.all.Life)
		}
	})
	t.Run("no decision", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.AwayFromWell)
		s.pass(40*time.Second, "n")
		ended(s, true, "they may decide, and don't")
	})
	t.Run("it is decided", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.AwayFromWell)
		s.do(membership.DownNode{Node: node("o")})
		s.pass(2*time.Second, "n")
		s.says(membership.AwayFromWell, "n")
		s.resumed(true, "no member is missing")
		s.pass(40*time.Second, "n")
		ended(s, false, "it was confirmed for")
	})
	t.Run("one member was not disconnected", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.Present)
		s.pass(5*time.Minute, "n")
		ended(s, false, "n is going to decide")
	})
	t.Run("all answer", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.cutFor(40*time.Second, "n", "o")
		s.says(membership.Away, "n", "o")
		s.resumed(true, "no member is missing")
		s.lose("n")
		s.pass(40*time.Second, "n")
		ended(s, false, "it was confirmed for")
	})
	t.Run("cut off again", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.Away)
		s.mute = true
		s.pass(time.Minute)
		ended(s, false, "it receives no messages")
		s.mute = false
		s.pass(20*time.Second, "n")
		ended(s, false, "it is back for a short time")
		s.pass(20*time.Second, "n")
		ended(s, true, "no member can confirm")
	})
	t.Run("without a time", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.pass(10*time.Minute, "n")
		ended(s, false, "an operator decides")
	})
}

// TestTheLastTwoReturn downs one of three nodes, then another one, and the third continues alone.
// The first two reconnect while the third is paused. In their own view they are two of three.
func TestTheLastTwoReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.settings.UndecidedAfter, w.settings.GiveUpAfter = 30*time.Second, 52*time.Second
	w.resolving(splitbrain.Settings{})
	hosts := w.join(names(3)...)
	w.up(time.Minute, hosts...)
	survivor, back := hosts[0], hosts[1:]
	back[1].offline = true
	// The second one is cut off just before the decision about the first one, so that it does not
	// receive that decision.
	w.run(24 * time.Second)
	back[0].offline = true
	w.run(time.Minute)
	if !survivor.hosting() || len(survivor.m.Gossip().Members()) != 1 {
		t.Fatalf("it should go on alone:\n%s", w.describe())
	}
	if m := back[0].m.Gossip().Member(back[1].node); m == nil || m.Status != up {
		t.Fatalf("it should not have heard of the decision:\n%s", w.describe())
	}
	survivor.pause()
	back[0].offline, back[1].offline = false, false
	w.until(2*time.Minute, func() bool {
		for _, h := range back {
			if h.hosting() {
				t.Fatalf("%v continues:\n%s", h.node, w.describe())
			}
		}
		return false
	})
	survivor.unpause()
	w.run(10 * time.Second)
	if !survivor.hosting() || !back[0].stopped(membership.WasDowned) || !back[1].stopped(membership.WasDowned) {
		t.Errorf("one node must continue and the others end:\n%s", w.describe())
	}
}

// TestBackAtOnce checks that a restarted node becomes a member as soon as its previous incarnation
// is removed,
// or as soon as the seeds can admit it. It does not wait for the next round of join requests.
func TestBackAtOnce(t *testing.T) {
	t.Parallel()
	restart := 10 * time.Second // membership.Settings.RetryJoinAfter
	for name, story := range map[string]struct {
		stays int // of three
		gone  func(w *world, hosts []*host)
		most  time.Duration
	}{
		// 3 s until the old one is taken for dead, 1 s until that is looked at, 1 s each for the
		// leader to remove it, for the next wish, for the first gossip, and for the leader to make
		// it Up; gossip in between.
		"crashed": {2, func(_ *world, hosts []*host) { hosts[2].kill() }, restart - time.Second},
		"left": {2, func(w *world, hosts []*host) {
			hosts[2].do(membership.Leave{Node: hosts[2].node})
			if !w.until(time.Minute, func() bool { return hosts[2].stopped(membership.Left) }) {
				t.Fatal("it does not leave")
			}
		}, restart - time.Second},
		"new, and the others are suspended": {3, func(w *world, _ []*host) {
			w.broker = true
			w.run(30 * time.Second)
			w.broker = false
		}, restart - time.Second},
	} {
		for seed := range uint64(20) {
			w := newWorld(t, seed)
			hosts := w.join(names(3)...)
			w.up(time.Minute, hosts...)
			story.gone(w, hosts)
			again := w.start(names(4)[story.stays])
			from := w.now
			again.do(membership.JoinSeeds{Seeds: names(2)})
			members := append(hosts[:story.stays:story.stays], again)
			if !w.until(time.Minute, func() bool { return w.agree(members...) }) || w.now-from > story.most {
				t.Errorf("%s, seed %d: it is there after %v, want %v at most:\n%s", name, seed, w.now-from, story.most, w.describe())
			}
		}
	}
}

// TestNoNodeJoinsThroughASuspendedOne checks that a suspended node admits no new node. It also does
// not take a new incarnation of a member as proof that the previous incarnation is dead. Otherwise
// it could continue
// alone while the rest of its cluster continues elsewhere.
func TestNoNodeJoinsThroughASuspendedOne(t *testing.T) {
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
		t.Fatal("it was away for long enough")
	}
	again := w.start("node-000")
	again.do(membership.JoinSeeds{Seeds: names(2)})
	other := w.start("node-002")
	other.do(membership.JoinNode{Name: "node-001"})
	w.run(time.Minute)
	switch {
	case !cut.m.Suspended():
		t.Error("it continues without a confirmation of its membership")
	case cut.m.Gossip().Member(hosts[0].node).Status != up:
		t.Error("it has downed another node without a confirmation of its own membership")
	case cut.m.Gossip().Member(again.node) != nil || cut.m.Gossip().Member(other.node) != nil:
		t.Error("it has let another one in")
	}
}

// TestTheSuspendedBelieveInNoRestart is the same for a name that another one wanted just before the
// node was cut off.
func TestTheSuspendedBelieveInNoRestart(t *testing.T) {
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
		t.Errorf("it has downed another node without a confirmation of its own membership: %v", m)
	}
}
