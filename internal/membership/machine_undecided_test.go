// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/internal/membership"
)

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
func (s *solo) suspended(want bool, what string) {
	s.t.Helper()
	if got := s.m.Suspended(); got != want {
		s.t.Fatalf("%s: suspended %t, life %v", what, got, s.all.Life)
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
	t.Run("nobody decides", func(t *testing.T) {
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
	t.Run("without a time it goes on", func(t *testing.T) {
		t.Parallel()
		s := with(t, "n", "o")
		s.lose("n")
		s.pass(10*time.Minute, "n")
		s.suspended(false, "whoever can't be reached hosts nothing that starts elsewhere")
	})
	t.Run("it leaves", func(t *testing.T) {
		t.Parallel()
		s := founded(t, func(c *membership.Config) {
			c.Settings.UndecidedAfter, c.Settings.LeavingUndecidedAfter = 30*time.Second, 10*time.Second
		})
		s.add("n", "o")
		s.pass(15*time.Second, "n", "o")
		s.do(membership.Leave{Node: self})
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
	t.Run("a lost link begins nothing anew", func(t *testing.T) {
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
	t.Run("a pause begins nothing anew", func(t *testing.T) {
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
		s.suspended(true, "o may have decided, whatever became of n")
	})
	t.Run("others find this node unreachable", func(t *testing.T) {
		t.Parallel()
		s := halting(t, "n", "o")
		g, err := s.m.Gossip().Apply(node("o"), membership.Change{Observed: []membership.Observation{{Subject: self, Reach: membership.Unreachable}}})
		if err != nil {
			t.Fatal(err)
		}
		s.recv("n", membership.StateOf(g))
		s.pass(31*time.Second, "n", "o")
		s.suspended(true, "o may have given it up")
	})
}

// TestAgreementBeginsAnew: the time counts from when all have seen that all can be reached, not from when this
// node found so.
func TestAgreementBeginsAnew(t *testing.T) {
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

// TestReconnectedAgreementIsOld: what all have seen before the link was lost does not tell that they still
// reach this node.
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

func TestUndecidedGoesOn(t *testing.T) {
	t.Parallel()
	halted := func(t *testing.T) *solo {
		t.Helper()
		s := halting(t, "n", "o")
		s.lose("n")
		s.pass(31*time.Second, "n")
		s.suspended(true, "nobody has decided")
		s.forget()
		return s
	}
	t.Run("when it was decided", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		s.do(membership.DownNode{Node: node("o")})
		s.resumed(false, "it may be the next one that is downed")
		s.pass(2*time.Second, "n")
		s.resumed(false, "n has not vouched")
		s.vouches(true, "n")
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
	t.Run("when all can be reached and vouch", func(t *testing.T) {
		t.Parallel()
		s := halted(t)
		for len(s.m.View().Unreachable) > 0 {
			s.pass(time.Second, "n", "o")
		}
		s.pass(2*time.Second, "n", "o")
		s.vouches(false, "n")
		s.resumed(false, "o may have given it up")
		s.vouches(true, "o")
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
		if to := sentIn(s.all, membership.KindDoubt); len(to) > 0 {
			t.Errorf("it asked %v, which was of no use", to)
		}
		s.resumed(false, "n can't know what o has decided")
	})
}
