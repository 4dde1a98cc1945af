// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
)

// away returns a machine with others that was suspended and hears itself again.
func away(t *testing.T, names ...string) *solo {
	t.Helper()
	s := with(t, names...)
	s.pass(10*time.Second, names...)
	s.awayAgain(names...)
	return s
}

func (s *solo) awayAgain(names ...string) {
	s.t.Helper()
	s.forget()
	s.mute = true
	s.pass(19 * time.Second)
	if s.m.Suspended() {
		s.t.Error("suspended too early")
	}
	s.pass(4 * time.Second)
	if !s.m.Suspended() || !slices.Equal(s.all.Life, []membership.Life{{Kind: membership.Disconnected}, {Kind: membership.Suspended}}) {
		s.t.Fatalf("life: %v", s.all.Life)
	}
	s.mute = false
	s.pass(time.Second, names...)
	if !s.m.View().Connected {
		s.t.Fatal("it hears itself")
	}
}

// asked returns the number of the last doubt.
func (s *solo) asked() uint64 {
	s.t.Helper()
	for _, sent := range slices.Backward(s.all.Send) {
		if sent.Kind == membership.KindDoubt {
			m, err := membership.DecodeMessage(sent.Data)
			d, ok := m.(membership.Doubt)
			if err != nil || !ok {
				s.t.Fatal(m, err)
			}
			return d.Nr
		}
	}
	s.t.Fatal("nobody was asked")
	return 0
}

// vouches lets members that know what the machine knows vouch for it.
func (s *solo) vouches(away bool, names ...string) {
	s.t.Helper()
	nr := s.asked()
	for _, name := range names {
		s.recv(name, membership.Vouch{Nr: nr, Absence: map[bool]membership.Absence{true: membership.Away}[away]})
		s.recv(name, membership.Digests{Version: s.m.Gossip().Clock().Digest()})
	}
}

func (s *solo) resumed(want bool, what string) {
	s.t.Helper()
	if got := !s.m.Suspended(); got != want || slices.Contains(s.all.Life, membership.Life{Kind: membership.Resumed}) != want {
		s.t.Fatalf("%s: it goes on: %t, life %v", what, got, s.all.Life)
	}
}

func TestResuming(t *testing.T) {
	t.Parallel()
	t.Run("all vouch, one of them was not away", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.resumed(false, "nobody has vouched")
		s.vouches(false, "n")
		s.resumed(false, "o has not vouched")
		s.vouches(true, "o")
		s.resumed(true, "both have")
	})
	t.Run("all were away", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.vouches(true, "n", "o")
		s.resumed(true, "nobody is left who could have given it up")
	})
	t.Run("nobody else is there", func(t *testing.T) {
		t.Parallel()
		s := away(t)
		s.resumed(true, "there is nobody to ask")
	})
	t.Run("nobody can be reached", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.pass(time.Minute)
		s.resumed(false, "they may have given it up")
		s.do(membership.DownNode{Node: node("n")})
		s.pass(3 * time.Second)
		s.resumed(false, "so may o")
		s.do(membership.DownNode{Node: node("o")})
		s.pass(3 * time.Second)
		s.resumed(true, "it was decided that they are dead")
	})
	t.Run("the silent ones", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o", "p")
		s.pass(5*time.Second, "n", "o")
		s.vouches(true, "n")
		s.resumed(false, "o can be reached")
		s.vouches(true, "o")
		s.pass(5*time.Second, "n", "o")
		s.resumed(false, "n and o were away, too: p may have given up all three")
		// n knows meanwhile that it is a member, and is asked again.
		s.vouches(false, "n")
		s.resumed(true, "n was not away")
	})
	t.Run("the silent one is removed", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.vouches(true, "n")
		s.pass(8*time.Second, "n")
		s.resumed(false, "o is silent")
		s.do(membership.DownNode{Node: node("o")})
		s.seen("n")
		s.pass(3*time.Second, "n")
		s.resumed(true, "o is down")
	})
	t.Run("joining", func(t *testing.T) {
		t.Parallel()
		s := with(t, "n")
		s.named("x", membership.Join{})
		s.pass(10*time.Second, "n", "x")
		s.awayAgain("n", "x")
		s.vouches(false, "x")
		s.pass(10*time.Second, "x")
		if got := s.m.Gossip().Unreachable(self); s.status(node("x")) != weakly || len(got) != 1 {
			t.Fatalf("x is %v, unreachable are %v", s.status(node("x")), got)
		}
		s.resumed(false, "who has joined but now does not tell which side goes on")
	})
	t.Run("answers to another doubt", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n")
		nr := s.asked()
		s.mute = true
		s.pass(5 * time.Second)
		s.mute = false
		s.pass(3*time.Second, "n")
		s.recv("n", membership.Vouch{Nr: nr})
		s.recv("n", membership.Digests{Version: s.m.Gossip().Clock().Digest()})
		s.resumed(false, "it was away once more since")
		s.vouches(false, "n")
		s.resumed(true, "this answer counts")
	})
	t.Run("gossip is no answer", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n")
		s.recv("n", membership.Digests{Version: s.m.Gossip().Clock().Digest()})
		s.recv("n", membership.Versions{Clock: s.m.Gossip().Clock()})
		s.seen("n")
		s.resumed(false, "it may have been on its way for long")
	})
	t.Run("who knows more", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n")
		s.recv("n", membership.Vouch{Nr: s.asked()})
		s.recv("n", membership.Versions{Clock: s.m.Gossip().Clock().Add(node("n"))})
		s.resumed(false, "maybe somebody else who has given it up")
		s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*membership.Member{member("x", joining)}})))
		s.resumed(false, "x has to be asked")
		s.pass(time.Second, "n", "x")
		s.vouches(true, "x")
		s.resumed(true, "all have vouched")
	})
	t.Run("who is silent since", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.vouches(false, "n")
		s.pass(10*time.Second, "o")
		s.vouches(true, "o")
		s.resumed(false, "n may have been given up since")
	})
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*membership.Member{member("m", down)}})))
		s.pass(10*time.Second, "n", "o")
		s.resumed(false, "it is down")
	})
}

// What a member says to one that doubts.
func TestVouching(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	clock := s.m.Gossip().Clock()
	s.recv("n", membership.Doubt{Nr: 7, Version: clock.Digest()})
	if got := s.last(membership.KindVouch); got != (membership.Vouch{Nr: 7}) || len(s.sent(membership.KindDigests)) != 1 {
		t.Errorf("%v, %v", got, s.out.Send)
	}
	s.recv("n", membership.Doubt{Nr: 8})
	s.wants("what it knows is another version", membership.KindVouch, "n")
	s.wants("what it knows is another version", membership.KindVersions, "n")

	s.do(membership.LinkLost{})
	s.recv("n", membership.Doubt{Nr: 9})
	if got := s.last(membership.KindVouch); got != (membership.Vouch{Nr: 9, Absence: membership.Away}) {
		t.Errorf("disconnected: %v", got)
	}
	s = away(t, "n", "o")
	s.recv("n", membership.Doubt{Nr: 1})
	if got := s.last(membership.KindVouch); got != (membership.Vouch{Nr: 1, Absence: membership.AwayFromWell}) {
		t.Errorf("suspended: %v", got)
	}
	s.pass(10*time.Second, "o")
	s.recv("n", membership.Doubt{Nr: 1})
	s.wants("who can't be reached", membership.KindVouch)

	s = with(t, "n", "o")
	s.do(membership.DownNode{Node: node("n")})
	s.recv("n", membership.Doubt{Nr: 1})
	s.wants("who was given up", membership.KindVouch)
	s.wants("who was given up", membership.KindState, "n")
	s.do(membership.DownNode{Node: self})
	s.recv("o", membership.Doubt{Nr: 1})
	s.wants("who is going to stop", membership.KindVouch)
	s.recv("x", membership.Doubt{Nr: 1})
	s.wants("a stranger", membership.KindStranger, "x")
}

// It is worth a line in the log that a node waits for long.
func TestADoubtThatLasts(t *testing.T) {
	t.Parallel()
	s := away(t, "n")
	s.pass(25*time.Second, "n")
	if got := s.logged("this node does not know yet whether it is still a member"); got != 1 {
		t.Errorf("%d lines", got)
	}
}
