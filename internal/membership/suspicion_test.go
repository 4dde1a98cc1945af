// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
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

// asked returns the number of the last LivenessQuery.
func (s *solo) asked() uint64 {
	s.t.Helper()
	for _, sent := range slices.Backward(s.all.Send) {
		if sent.Kind == membership.KindLivenessQuery {
			m, err := membership.DecodeMessage(sent.Data)
			d, ok := m.(membership.LivenessQuery)
			if err != nil || !ok {
				s.t.Fatal(m, err)
			}
			return d.Nr
		}
	}
	s.t.Fatal("no member was asked")
	return 0
}

// confirms makes members with the same gossip confirm the membership of the machine.
func (s *solo) confirms(away bool, names ...string) {
	s.t.Helper()
	nr := s.asked()
	for _, name := range names {
		s.recv(name, membership.LivenessReply{Nr: nr, Absence: map[bool]membership.Absence{true: membership.Away}[away]})
		s.recv(name, membership.Digests{Version: s.m.Gossip().Clock().Digest()})
	}
}

func (s *solo) resumed(want bool, subject string) {
	s.t.Helper()
	if got := !s.m.Suspended(); got != want || slices.Contains(s.all.Life, membership.Life{Kind: membership.Resumed}) != want {
		s.t.Fatalf("%s: hosting: %t, life %v", subject, got, s.all.Life)
	}
}

func TestResuming(t *testing.T) {
	t.Parallel()
	t.Run("all confirm, one of them was not away", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.resumed(false, "no member has confirmed")
		s.confirms(false, "n")
		s.resumed(false, "o has not confirmed")
		s.confirms(true, "o")
		s.resumed(true, "both have")
	})
	t.Run("all were away", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.confirms(true, "n", "o")
		s.resumed(true, "no member is left that could have downed it")
	})
	t.Run("no other members", func(t *testing.T) {
		t.Parallel()
		s := away(t)
		s.resumed(true, "there is no member to ask")
	})
	t.Run("no reachable members", func(t *testing.T) {
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
		s.confirms(true, "n")
		s.resumed(false, "o can be reached")
		s.confirms(true, "o")
		s.pass(5*time.Second, "n", "o")
		s.resumed(false, "n and o were disconnected, too: p may have downed all three nodes")
		// n is asked again after it has the whole state.
		s.confirms(false, "n")
		s.resumed(true, "n was not away")
	})
	t.Run("the silent one is removed", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.confirms(true, "n")
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
		s.confirms(false, "x")
		s.pass(10*time.Second, "x")
		if got := s.m.Gossip().Unreachable(thisNode); s.status(node("x")) != weakly || len(got) != 1 {
			t.Fatalf("x is %v, unreachable are %v", s.status(node("x")), got)
		}
		s.resumed(false, "who has joined but now does not tell which side goes on")
	})
	t.Run("answers to another query", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n")
		nr := s.asked()
		s.mute = true
		s.pass(5 * time.Second)
		s.mute = false
		s.pass(3*time.Second, "n")
		s.recv("n", membership.LivenessReply{Nr: nr})
		s.recv("n", membership.Digests{Version: s.m.Gossip().Clock().Digest()})
		s.resumed(false, "it was away once more since")
		s.confirms(false, "n")
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
	t.Run("a member with a newer state", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n")
		s.recv("n", membership.LivenessReply{Nr: s.asked()})
		s.recv("n", membership.Versions{Clock: s.m.Gossip().Clock().Add(node("n"))})
		s.resumed(false, "another member may have downed it")
		s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*identity.Member{member("x", joining)}})))
		s.resumed(false, "x has to be asked")
		s.pass(time.Second, "n", "x")
		s.confirms(true, "x")
		s.resumed(true, "all have confirmed")
	})
	t.Run("a member that became silent", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.confirms(false, "n")
		s.pass(10*time.Second, "o")
		s.confirms(true, "o")
		s.resumed(false, "n may have been downed since then")
	})
	t.Run("downed", func(t *testing.T) {
		t.Parallel()
		s := away(t, "n", "o")
		s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*identity.Member{member("m", down)}})))
		s.pass(10*time.Second, "n", "o")
		s.resumed(false, "it is down")
	})
}

// The replies of a member to a LivenessQuery.
func TestVouching(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	clock := s.m.Gossip().Clock()
	s.recv("n", membership.LivenessQuery{Nr: 7, Version: clock.Digest()})
	if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 7}) || len(s.sent(membership.KindDigests)) != 1 {
		t.Errorf("%v, %v", got, s.out.Send)
	}
	s.recv("n", membership.LivenessQuery{Nr: 8})
	s.wants("what it knows is another version", membership.KindLivenessReply, "n")
	s.wants("what it knows is another version", membership.KindVersions, "n")

	s.do(membership.LinkLost{})
	s.recv("n", membership.LivenessQuery{Nr: 9})
	if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 9, Absence: membership.Away}) {
		t.Errorf("disconnected: %v", got)
	}
	s = away(t, "n", "o")
	s.recv("n", membership.LivenessQuery{Nr: 1})
	if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 1, Absence: membership.AwayFromWell}) {
		t.Errorf("suspended: %v", got)
	}
	s.pass(10*time.Second, "o")
	s.recv("n", membership.LivenessQuery{Nr: 1})
	s.wants("who can't be reached", membership.KindLivenessReply)

	s = with(t, "n", "o")
	s.do(membership.DownNode{Node: node("n")})
	s.recv("n", membership.LivenessQuery{Nr: 1})
	s.wants("a query from a downed node", membership.KindLivenessReply)
	s.wants("a query from a downed node", membership.KindState, "n")
	s.do(membership.DownNode{Node: thisNode})
	s.recv("o", membership.LivenessQuery{Nr: 1})
	s.wants("who is going to stop", membership.KindLivenessReply)
	s.recv("x", membership.LivenessQuery{Nr: 1})
	s.wants("a stranger", membership.KindStranger, "x")
}

// It is worth a line in the log that a node waits for long.
func TestADoubtThatLasts(t *testing.T) {
	t.Parallel()
	s := away(t, "n")
	s.pass(25*time.Second, "n")
	if got := s.logged("membership is not confirmed yet"); got != 1 {
		t.Errorf("%d lines", got)
	}
}

// halting returns a machine with others that stops hosting after half a minute without a decision.
func halting(t *testing.T, names ...string) *solo {
	t.Helper()
	s := founded(t, func(c *membership.Config) { c.Settings.UndecidedAfter = 30 * time.Second })
	s.add(names...)
	s.pass(15*time.Second, names...) // it has heard all of them for a while
	s.forget()
	return s
}

// suspended asserts whether it hosts nothing.
func (s *solo) suspended(want bool, subject string) {
	s.t.Helper()
	if got := s.m.Suspended(); got != want {
		s.t.Fatalf("%s: suspended %t, life %v", subject, got, s.all.Life)
	}
}

// lose lets time pass until a member that is silent is found unreachable.
func (s *solo) lose(answering ...string) {
	s.t.Helper()
	for len(s.m.View().Unreachable) == 0 {
		s.pass(time.Second, answering...)
	}
}

func TestUndecided(t *testing.T) {
	t.Parallel()
	t.Run("no decision", func(t *testing.T) {
		t.Parallel()
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(28*time.Second, "n")
		s.suspended(false, "a decision may still come in time")
		s.pass(2*time.Second, "n")
		s.suspended(true, "others may have decided")
		if s.m.Counters().TimedOut[membership.TimeoutUndecided] != 1 {
			t.Error("it was not counted")
		}
	})
	t.Run("without a time it continues", func(t *testing.T) {
		t.Parallel()
		s := with(t, "n", "o")
		s.lose("n")
		s.pass(10*time.Minute, "n")
		s.suspended(false, "unreachable members host nothing that starts elsewhere")
	})
	t.Run("it leaves", func(t *testing.T) {
		t.Parallel()
		s := founded(t, func(c *membership.Config) {
			c.Settings.UndecidedAfter, c.Settings.LeavingUndecidedAfter = 30*time.Second, 10*time.Second
		})
		s.add("n", "o")
		s.pass(15*time.Second, "n", "o")
		s.do(membership.Leave{Node: thisNode})
		s.lose("n")
		s.pass(5*time.Second, "n")
		s.suspended(false, "too early")
		s.pass(5*time.Second, "n")
		s.suspended(true, "the others may have removed it")
	})
	t.Run("it was decided", func(t *testing.T) {
		t.Parallel()
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(20*time.Second, "n")
		s.do(membership.DownNode{Node: node("o")})
		s.pass(time.Minute, "n")
		s.suspended(false, "o is down")
	})
	t.Run("a lost link does not restart the timer", func(t *testing.T) {
		t.Parallel()
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(20*time.Second, "n")
		s.mute = true
		s.pass(5 * time.Second)
		s.mute = false
		s.pass(3*time.Second, "n")
		s.suspended(false, "too early")
		s.pass(2*time.Second, "n")
		s.suspended(true, "the time of the others has gone on")
	})
	t.Run("a pause does not restart the timer", func(t *testing.T) {
		t.Parallel()
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(20*time.Second, "n")
		s.now += 12 * time.Second
		s.named("n", membership.InitJoin{})
		s.suspended(true, "it learns first that it was not running")
	})
	t.Run("another one can't be reached", func(t *testing.T) {
		t.Parallel()
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(20 * time.Second)
		s.pass(10 * time.Second)
		s.suspended(true, "o may have decided, independently of n")
	})
	t.Run("others find this node unreachable", func(t *testing.T) {
		t.Parallel()
		s := halting(t, "n", "o")
		g, err := s.m.Gossip().Apply(node("o"), membership.Change{Observed: []membership.Observation{{Subject: thisNode, Reach: membership.Unreachable}}})
		if err != nil {
			t.Fatal(err)
		}
		s.recv("n", membership.StateOf(g))
		s.pass(31*time.Second, "n", "o")
		s.suspended(true, "o may have given it up")
	})
}

// TestAgreementResetsTheTimer checks that the timer starts when all members have seen that all
// members are reachable, not when this node has seen it.
func TestAgreementResetsTheTimer(t *testing.T) {
	t.Parallel()
	for _, agreed := range []bool{false, true} {
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(20*time.Second, "n")
		for len(s.m.View().Unreachable) > 0 {
			s.pass(time.Second, "n", "o")
		}
		s.seen("n")
		if agreed {
			s.seen("o")
		}
		s.pass(time.Second, "n", "o")
		s.lose("n")
		s.pass(5*time.Second, "n")
		s.suspended(!agreed, "half a minute after o was silent first")
	}
}

// TestReconnectedAgreementIsOld checks that an agreement from before the disconnection does not
// prove that the other members still reach this node.
func TestReconnectedAgreementIsOld(t *testing.T) {
	t.Parallel()
	s := halting(t, "n", "o")
	s.seen("n", "o")
	s.mute = true
	s.pass(18 * time.Second)
	s.mute = false
	s.lose("n")
	s.seen("n")
	s.pass(8*time.Second, "n")
	s.suspended(true, "o may not have reached it since the link was lost, half a minute ago")

	s = halting(t, "n", "o")
	s.seen("n", "o")
	s.mute = true
	s.pass(18 * time.Second)
	s.mute = false
	s.pass(20*time.Second, "n", "o")
	s.lose("n")
	s.pass(20*time.Second, "n")
	s.suspended(false, "o was there after the link was lost")
}

func TestSuspensionWithoutADecisionEnds(t *testing.T) {
	t.Parallel()
	halted := func(t *testing.T) *solo {
		t.Helper()
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(31*time.Second, "n")
		s.suspended(true, "no decision")
		s.forget()
		return s
	}
	t.Run("when it was decided", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		s.do(membership.DownNode{Node: node("o")})
		s.resumed(false, "it may be the next one that is downed")
		s.pass(2*time.Second, "n")
		s.resumed(false, "n has not confirmed")
		s.confirms(true, "n")
		s.resumed(true, "n has, and o is down")
	})
	t.Run("not when it is downed last", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		for _, name := range []string{"n", "o", "m"} {
			s.do(membership.DownNode{Node: node(name)})
		}
		s.pass(20 * time.Second)
		s.resumed(false, "it is down")
	})
	t.Run("when all can be reached and confirm", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		for len(s.m.View().Unreachable) > 0 {
			s.pass(time.Second, "n", "o")
		}
		s.pass(2*time.Second, "n", "o")
		s.confirms(false, "n")
		s.resumed(false, "o may have given it up")
		s.confirms(true, "o")
		s.resumed(true, "o has not")
		s.seen("n", "o")
		s.lose("n")
		s.pass(25*time.Second, "n")
		s.suspended(false, "all is counted anew")
	})
	t.Run("not as long as it is open", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		s.mute = true
		s.pass(5 * time.Second)
		s.mute = false
		s.pass(8*time.Second, "n")
		if to := sentIn(s.all, membership.KindLivenessQuery); len(to) > 0 {
			t.Errorf("it asked %v, which was of no use", to)
		}
		s.resumed(false, "n can't know what o has decided")
	})
}
