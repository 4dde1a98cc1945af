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

// reconnected returns a machine with other members that was suspended and is connected again.
func reconnected(t *testing.T, names ...string) *solo {
	t.Helper()
	s := with(t, names...)
	s.pass(10*time.Second, names...)
	s.reconnectAgain(names...)
	return s
}

func (s *solo) reconnectAgain(names ...string) {
	s.t.Helper()
	s.forget()
	s.mute = true
	s.pass(19 * time.Second)
	if s.m.Suspended() {
		s.t.Error("the node was suspended too early")
	}
	s.pass(4 * time.Second)
	if !s.m.Suspended() || !slices.Equal(s.all.Life, []membership.Life{{Kind: membership.Disconnected}, {Kind: membership.Suspended}}) {
		s.t.Fatalf("life events: %v, want Disconnected, Suspended", s.all.Life)
	}
	s.mute = false
	s.pass(time.Second, names...)
	if !s.m.View().Connected {
		s.t.Fatal("the node is not connected again")
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
				s.t.Fatalf("the sent message was decoded to %v, %v, want a LivenessQuery", m, err)
			}
			return d.Nr
		}
	}
	s.t.Fatal("no LivenessQuery was sent")
	return 0
}

// confirms lets members with the same gossip confirm the membership of the machine.
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
		s.t.Fatalf("%s: the node hosts: %t, want %t; life events %v", subject, got, want, s.all.Life)
	}
}

func TestResuming(t *testing.T) {
	t.Parallel()
	t.Run("all confirm, one was not disconnected", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o")
		s.resumed(false, "no member has confirmed")
		s.confirms(false, "n")
		s.resumed(false, "o has not confirmed")
		s.confirms(true, "o")
		s.resumed(true, "both members have confirmed")
	})
	t.Run("all were disconnected", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o")
		s.confirms(true, "n", "o")
		s.resumed(true, "no other member could have downed the node")
	})
	t.Run("no other members", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t)
		s.resumed(true, "there is no member to ask")
	})
	t.Run("no reachable members", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o")
		s.pass(time.Minute)
		s.resumed(false, "the unreachable members may have downed the node")
		s.do(membership.DownNode{Node: node("n")})
		s.pass(3 * time.Second)
		s.resumed(false, "o may have downed the node")
		s.do(membership.DownNode{Node: node("o")})
		s.pass(3 * time.Second)
		s.resumed(true, "the unreachable members are down")
	})
	t.Run("silent members", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o", "p")
		s.pass(5*time.Second, "n", "o")
		s.confirms(true, "n")
		s.resumed(false, "o is reachable")
		s.confirms(true, "o")
		s.pass(5*time.Second, "n", "o")
		s.resumed(false, "n and o were disconnected, too: p may have downed all three nodes")
		// n is asked again after it has the whole state.
		s.confirms(false, "n")
		s.resumed(true, "n was not disconnected")
	})
	t.Run("the silent member is removed", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o")
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
		s.reconnectAgain("n", "x")
		s.confirms(false, "x")
		s.pass(10*time.Second, "x")
		if got := s.m.Gossip().Unreachable(thisNode); s.status(node("x")) != weakly || len(got) != 1 {
			t.Fatalf("x is %v and the unreachable members are %v, want weakly up and 1", s.status(node("x")), got)
		}
		s.resumed(false, "the reply of a joining member is not sufficient")
	})
	t.Run("answers to another query", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n")
		nr := s.asked()
		s.mute = true
		s.pass(5 * time.Second)
		s.mute = false
		s.pass(3*time.Second, "n")
		s.recv("n", membership.LivenessReply{Nr: nr})
		s.recv("n", membership.Digests{Version: s.m.Gossip().Clock().Digest()})
		s.resumed(false, "the node was disconnected again")
		s.confirms(false, "n")
		s.resumed(true, "the reply to the latest query counts")
	})
	t.Run("gossip instead of a reply", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n")
		s.recv("n", membership.Digests{Version: s.m.Gossip().Clock().Digest()})
		s.recv("n", membership.Versions{Clock: s.m.Gossip().Clock()})
		s.seen("n")
		s.resumed(false, "the gossip may be old")
	})
	t.Run("a member with a newer state", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n")
		s.recv("n", membership.LivenessReply{Nr: s.asked()})
		s.recv("n", membership.Versions{Clock: s.m.Gossip().Clock().Add(node("n"))})
		s.resumed(false, "another member may have downed the node")
		s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*identity.Member{member("x", joining)}})))
		s.resumed(false, "x has not replied")
		s.pass(time.Second, "n", "x")
		s.confirms(true, "x")
		s.resumed(true, "all have confirmed")
	})
	t.Run("a member that became silent", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o")
		s.confirms(false, "n")
		s.pass(10*time.Second, "o")
		s.confirms(true, "o")
		s.resumed(false, "n may have been downed since then")
	})
	t.Run("downed", func(t *testing.T) {
		t.Parallel()
		s := reconnected(t, "n", "o")
		s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*identity.Member{member("m", down)}})))
		s.pass(10*time.Second, "n", "o")
		s.resumed(false, "the node is down")
	})
}

// TestLivenessReply checks the replies of a member to a LivenessQuery.
func TestLivenessReply(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	clock := s.m.Gossip().Clock()
	s.recv("n", membership.LivenessQuery{Nr: 7, Version: clock.Digest()})
	if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 7}) || len(s.sent(membership.KindDigests)) != 1 {
		t.Errorf("the reply is %v and the sent messages are %v, want LivenessReply 7 and the digests", got, s.out.Send)
	}
	s.recv("n", membership.LivenessQuery{Nr: 8})
	s.wants("the sender has another version", membership.KindLivenessReply, "n")
	s.wants("the sender has another version", membership.KindVersions, "n")

	s.do(membership.LinkLost{})
	s.recv("n", membership.LivenessQuery{Nr: 9})
	if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 9, Absence: membership.Away}) {
		t.Errorf("the reply of a disconnected node is %v, want Absence Away", got)
	}
	s = reconnected(t, "n", "o")
	s.recv("n", membership.LivenessQuery{Nr: 1})
	if got := s.last(membership.KindLivenessReply); got != (membership.LivenessReply{Nr: 1, Absence: membership.AwayFromWell}) {
		t.Errorf("the reply of a suspended node is %v, want Absence AwayFromWell", got)
	}
	s.pass(10*time.Second, "o")
	s.recv("n", membership.LivenessQuery{Nr: 1})
	s.wants("the sender is unreachable", membership.KindLivenessReply)

	s = with(t, "n", "o")
	s.do(membership.DownNode{Node: node("n")})
	s.recv("n", membership.LivenessQuery{Nr: 1})
	s.wants("a query from a downed node", membership.KindLivenessReply)
	s.wants("a query from a downed node", membership.KindState, "n")
	s.do(membership.DownNode{Node: thisNode})
	s.recv("o", membership.LivenessQuery{Nr: 1})
	s.wants("this node is about to stop", membership.KindLivenessReply)
	s.recv("x", membership.LivenessQuery{Nr: 1})
	s.wants("a stranger", membership.KindStranger, "x")
}

// A node that waits long for a confirmation logs one line.
func TestLongLivenessCheck(t *testing.T) {
	t.Parallel()
	s := reconnected(t, "n")
	s.pass(25*time.Second, "n")
	if got := s.logged("membership is not confirmed yet"); got != 1 {
		t.Errorf("logged %d lines, want 1", got)
	}
}

// withUndecidedLimit returns a machine with other members that stops hosting after half a minute
// without a decision.
func withUndecidedLimit(t *testing.T, names ...string) *solo {
	t.Helper()
	s := founded(t, func(c *membership.Config) { c.Settings.UndecidedAfter = 30 * time.Second })
	s.add(names...)
	s.pass(15*time.Second, names...) // the members have replied for a while
	s.forget()
	return s
}

// suspended asserts whether the node is suspended.
func (s *solo) suspended(want bool, subject string) {
	s.t.Helper()
	if got := s.m.Suspended(); got != want {
		s.t.Fatalf("%s: suspended %t, want %t; life events %v", subject, got, want, s.all.Life)
	}
}

// lose advances the time until a silent member is found unreachable.
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
		s := withUndecidedLimit(t, "n", "o")
		s.lose("n")
		s.pass(28*time.Second, "n")
		s.suspended(false, "a decision may still come in time")
		s.pass(2*time.Second, "n")
		s.suspended(true, "others may have decided")
		if s.m.Counters().TimedOut[membership.TimeoutUndecided] != 1 {
			t.Errorf("TimeoutUndecided was counted %d times, want once", s.m.Counters().TimedOut[membership.TimeoutUndecided])
		}
	})
	t.Run("without a limit", func(t *testing.T) {
		t.Parallel()
		s := with(t, "n", "o")
		s.lose("n")
		s.pass(10*time.Minute, "n")
		s.suspended(false, "unreachable members host nothing that starts elsewhere")
	})
	t.Run("leaving", func(t *testing.T) {
		t.Parallel()
		s := founded(t, func(c *membership.Config) {
			c.Settings.UndecidedAfter, c.Settings.LeavingUndecidedAfter = 30*time.Second, 10*time.Second
		})
		s.add("n", "o")
		s.pass(15*time.Second, "n", "o")
		s.do(membership.Leave{Node: thisNode})
		s.lose("n")
		s.pass(5*time.Second, "n")
		s.suspended(false, "the limit has not passed")
		s.pass(5*time.Second, "n")
		s.suspended(true, "the others may have removed the node")
	})
	t.Run("by the number of members that may host", func(t *testing.T) {
		t.Parallel()
		s := founded(t, func(c *membership.Config) {
			c.Limits = func(members int) membership.Limits {
				limit := time.Duration(members) * 10 * time.Second
				return membership.Limits{SuspendAfter: limit, UndecidedAfter: limit, LeavingUndecidedAfter: limit}
			}
		})
		s.add("n", "o")
		s.pass(15*time.Second, "n", "o")
		s.lose("n")
		for i := range 7 { // the side that continues may not have received these
			s.do(membership.Received{From: node(string(rune('p' + i))), To: identity.Node{Name: thisNode.Name}, Data: membership.AppendMessage(nil, membership.Join{})})
		}
		s.pass(27*time.Second, "n")
		if got := len(s.m.Gossip().Members()); got != 10 {
			t.Fatalf("the cluster has %d members, want 10", got)
		}
		s.suspended(false, "the limit has not passed")
		s.pass(3*time.Second, "n")
		s.suspended(true, "three members may host")
	})
	t.Run("after a decision", func(t *testing.T) {
		t.Parallel()
		s := withUndecidedLimit(t, "n", "o")
		s.lose("n")
		s.pass(20*time.Second, "n")
		s.do(membership.DownNode{Node: node("o")})
		s.pass(time.Minute, "n")
		s.suspended(false, "o is down")
	})
	t.Run("a lost link does not restart the timer", func(t *testing.T) {
		t.Parallel()
		s := withUndecidedLimit(t, "n", "o")
		s.lose("n")
		s.pass(20*time.Second, "n")
		s.mute = true
		s.pass(5 * time.Second)
		s.mute = false
		s.pass(3*time.Second, "n")
		s.suspended(false, "the limit has not passed")
		s.pass(2*time.Second, "n")
		s.suspended(true, "the timers of the others continued")
	})
	t.Run("a pause does not restart the timer", func(t *testing.T) {
		t.Parallel()
		s := withUndecidedLimit(t, "n", "o")
		s.lose("n")
		s.pass(20*time.Second, "n")
		s.now += 12 * time.Second
		s.named("n", membership.InitJoin{})
		s.suspended(true, "the pause is handled first")
	})
	t.Run("another member becomes unreachable", func(t *testing.T) {
		t.Parallel()
		s := withUndecidedLimit(t, "n", "o")
		s.lose("n")
		s.pass(20 * time.Second)
		s.pass(10 * time.Second)
		s.suspended(true, "o may have decided, independently of n")
	})
	t.Run("others find this node unreachable", func(t *testing.T) {
		t.Parallel()
		s := withUndecidedLimit(t, "n", "o")
		g, err := s.m.Gossip().Apply(node("o"), membership.Change{Observed: []membership.Observation{{Subject: thisNode, Reach: membership.Unreachable}}})
		if err != nil {
			t.Fatal(err)
		}
		s.recv("n", membership.StateOf(g))
		s.pass(31*time.Second, "n", "o")
		s.suspended(true, "o may have downed the node")
	})
}

// TestAgreementResetsTheTimer checks that the timer starts when all members have seen that all
// members are reachable, not when this node has seen it.
func TestAgreementResetsTheTimer(t *testing.T) {
	t.Parallel()
	for _, agreed := range []bool{false, true} {
		s := withUndecidedLimit(t, "n", "o")
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
		s.suspended(!agreed, "half a minute after the first silence of o")
	}
}

// TestAgreementBeforeDisconnection checks that an agreement from before the disconnection does not
// prove that the other members still reach this node.
func TestAgreementBeforeDisconnection(t *testing.T) {
	t.Parallel()
	s := withUndecidedLimit(t, "n", "o")
	s.seen("n", "o")
	s.mute = true
	s.pass(18 * time.Second)
	s.mute = false
	s.lose("n")
	s.seen("n")
	s.pass(8*time.Second, "n")
	s.suspended(true, "o may not have reached the node since the disconnection half a minute ago")

	s = withUndecidedLimit(t, "n", "o")
	s.seen("n", "o")
	s.mute = true
	s.pass(18 * time.Second)
	s.mute = false
	s.pass(20*time.Second, "n", "o")
	s.lose("n")
	s.pass(20*time.Second, "n")
	s.suspended(false, "o was reachable after the disconnection")
}

func TestResumeAfterDecision(t *testing.T) {
	t.Parallel()
	halted := func(t *testing.T) *solo {
		t.Helper()
		s := withUndecidedLimit(t, "n", "o")
		s.lose("n")
		s.pass(31*time.Second, "n")
		s.suspended(true, "no decision")
		s.forget()
		return s
	}
	t.Run("after a decision", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		s.do(membership.DownNode{Node: node("o")})
		s.resumed(false, "the node may be downed next")
		s.pass(2*time.Second, "n")
		s.resumed(false, "n has not confirmed")
		s.confirms(true, "n")
		s.resumed(true, "n has confirmed and o is down")
	})
	t.Run("not when the node is downed", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		for _, name := range []string{"n", "o", "m"} {
			s.do(membership.DownNode{Node: node(name)})
		}
		s.pass(20 * time.Second)
		s.resumed(false, "the node is down")
	})
	t.Run("when all are reachable and confirm", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		for len(s.m.View().Unreachable) > 0 {
			s.pass(time.Second, "n", "o")
		}
		s.pass(2*time.Second, "n", "o")
		s.confirms(false, "n")
		s.resumed(false, "o may have downed the node")
		s.confirms(true, "o")
		s.resumed(true, "o has confirmed")
		s.seen("n", "o")
		s.lose("n")
		s.pass(25*time.Second, "n")
		s.suspended(false, "the timer restarted")
	})
	t.Run("not while the decision is pending", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		s.mute = true
		s.pass(5 * time.Second)
		s.mute = false
		s.pass(8*time.Second, "n")
		if to := sentIn(s.all, membership.KindLivenessQuery); len(to) > 0 {
			t.Errorf("the node sent a LivenessQuery to %v while the decision was pending", to)
		}
		s.resumed(false, "n may not have the decision of o")
	})
}
