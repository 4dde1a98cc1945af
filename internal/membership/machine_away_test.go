// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// ending returns a machine with others that ends half a minute after it is back, if nobody vouches for it, and that
// stops hosting after half a minute without a decision.
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

// says lets members that know what the machine knows answer its last doubt.
func (s *solo) says(a membership.Absence, names ...string) {
	s.t.Helper()
	nr := s.asked()
	for _, name := range names {
		s.recv(name, membership.Vouch{Nr: nr, Absence: a})
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

func (s *solo) stands(want membership.Standing, what string) {
	s.t.Helper()
	if got := s.m.Standing(); got != want {
		s.t.Fatalf("%s: it stands %v, want %v", what, got, want)
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	t.Run("a short time", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.stands(membership.Sure, "it was never away")
		s.mute = true
		s.pass(10 * time.Second)
		s.stands(membership.Cut, "it does not hear itself")
		s.cutFor(0)
		s.stands(membership.Sure, "nobody can have given it up in so short a time")
	})
	for name, c := range map[string]struct {
		n, o membership.Absence
		want membership.Standing
	}{
		"together":                   {membership.AwayFromWell, membership.AwayFromWell, membership.Together},
		"one of them went later":     {membership.AwayFromWell, membership.Away, membership.Doubtful},
		"one of them was there":      {membership.Present, membership.Away, membership.Sure},
		"one of them waited for all": {membership.Away, membership.Halted, membership.Sure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := ending(t, "n", "o", "p")
			s.cutFor(40*time.Second, "n", "o")
			s.stands(membership.Doubtful, "nobody has answered")
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
		s.stands(membership.Doubtful, "it is not known who can be reached")
		s.pass(10 * time.Second)
		s.stands(membership.Together, "it is those who were away together")
	})
	t.Run("somebody does not answer", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o", "p")
		s.cutFor(40*time.Second, "n", "o")
		s.lose("n", "o")
		s.says(membership.AwayFromWell, "n")
		s.stands(membership.Doubtful, "o has not answered")
	})
	t.Run("somebody is silent since", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o", "p")
		s.cutFor(40*time.Second, "n", "o")
		s.lose("n", "o")
		s.says(membership.Halted, "o")
		s.stands(membership.Sure, "o was not away")
		s.pass(10*time.Second, "n")
		s.stands(membership.Doubtful, "o may have been given up since")
	})
	t.Run("joining", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n")
		s.named("x", membership.Join{})
		s.cutFor(40*time.Second, "x")
		s.lose("x")
		s.says(membership.Present, "x")
		s.stands(membership.Doubtful, "who has joined but now knows no more")
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.cutFor(40 * time.Second)
		s.cutFor(10 * time.Second)
		s.pass(10 * time.Second)
		s.stands(membership.Doubtful, "others may have counted on it in between")
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
		s.stands(membership.Doubtful, "o may have been given up by n and this node's others")
	})
	t.Run("it had stopped hosting before", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n", "o")
		s.lose("n")
		s.pass(31*time.Second, "n")
		s.suspended(true, "nobody has decided")
		s.stands(membership.Sure, "it was not away")
		s.cutFor(40 * time.Second)
		s.stands(membership.Doubtful, "it was")
	})
	t.Run("vouched for", func(t *testing.T) {
		t.Parallel()
		s := ending(t, "n")
		s.cutFor(40*time.Second, "n")
		s.says(membership.Present, "n")
		s.resumed(true, "n was not away")
		s.stands(membership.Sure, "it is a member")
		s.lose()
		s.stands(membership.Sure, "whoever is missing now")
	})
}

// TestAbsence: what a node says of itself to another one that doubts.
func TestAbsence(t *testing.T) {
	t.Parallel()
	says := func(s *solo, want membership.Absence, what string) {
		t.Helper()
		s.recv("n", membership.Doubt{Nr: 1})
		if got := s.last(membership.KindVouch); got != (membership.Vouch{Nr: 1, Absence: want}) {
			t.Errorf("%s: it says %v, want %v", what, got, want)
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
	says(s, membership.Halted, "nobody has decided about o")
	s.cutFor(40*time.Second, "n")
	says(s, membership.Away, "it was away, and o was missing before")

	s = ending(t, "n", "o")
	s.cutFor(40*time.Second, "n", "o")
	says(s, membership.AwayFromWell, "it was away, and nobody was missing before")
	s.cutFor(5*time.Second, "n", "o")
	says(s, membership.Away, "it was away twice")
}

// TestGivingUp: a node that was away for long and hears of nobody who was not ends by itself.
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
	ended := func(s *solo, want bool, what string) {
		s.t.Helper()
		if got := !s.m.Member(); got != want {
			s.t.Fatalf("%s: it has ended: %t", what, got)
		}
	}
	t.Run("nobody knows", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.Away)
		s.pass(20*time.Second, "n")
		ended(s, false, "somebody may still come")
		s.pass(20*time.Second, "n")
		ended(s, true, "nobody has come")
		if s.m.Counters().TimedOut[membership.TimeoutDoubt] != 1 || s.all.Life[len(s.all.Life)-1].Reason != membership.WasDowned {
			t.Errorf("%v, %v", s.m.Counters().TimedOut, s.all.Life)
		}
	})
	t.Run("nobody decides", func(t *testing.T) {
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
		s.resumed(true, "nobody is missing")
		s.pass(40*time.Second, "n")
		ended(s, false, "it was vouched for")
	})
	t.Run("somebody was not away", func(t *testing.T) {
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
		s.resumed(true, "nobody is missing")
		s.lose("n")
		s.pass(40*time.Second, "n")
		ended(s, false, "it was vouched for")
	})
	t.Run("cut off again", func(t *testing.T) {
		t.Parallel()
		s := back(t, membership.Away)
		s.mute = true
		s.pass(time.Minute)
		ended(s, false, "it hears nobody")
		s.mute = false
		s.pass(20*time.Second, "n")
		ended(s, false, "it is back for a short time")
		s.pass(20*time.Second, "n")
		ended(s, true, "nobody knows")
	})
	t.Run("without a time", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.pass(10*time.Minute, "n")
		ended(s, false, "an operator decides")
	})
}

// TestTheLastTwoComeBack: of three nodes one is given up, then another, and the third goes on alone. Those two come back
// while it stands still. By what they know they are two of three.
func TestTheLastTwoComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.settings.UndecidedAfter, w.settings.GiveUpAfter = 30*time.Second, 52*time.Second
	w.resolving(splitbrain.Settings{})
	hosts := w.join(names(3)...)
	w.up(time.Minute, hosts...)
	survivor, back := hosts[0], hosts[1:]
	back[1].offline = true
	// The second one is cut off just before it is decided about the first one, so that it does not hear of that.
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
				t.Fatalf("%v goes on:\n%s", h.node, w.describe())
			}
		}
		return false
	})
	survivor.unpause()
	w.run(10 * time.Second)
	if !survivor.hosting() || !back[0].stopped(membership.WasDowned) || !back[1].stopped(membership.WasDowned) {
		t.Errorf("one goes on, the others end:\n%s", w.describe())
	}
}
