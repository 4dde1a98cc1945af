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

// Whoever has asked a node that was no member yet hears as soon as it is.
func TestThoseThatWaitHearAtOnce(t *testing.T) {
	t.Parallel()
	founder := newSolo(t)
	founder.do(membership.JoinSeeds{Seeds: []string{"m", "a"}})
	joiner := newSolo(t)
	joiner.do(membership.JoinNode{Name: "b"})
	for _, s := range []*solo{founder, joiner} {
		for _, who := range []string{"a", "c", "a"} {
			s.named(who, membership.InitJoin{})
			s.wants("not yet", membership.KindInitJoinNack, who)
		}
		s.named("d", membership.InitJoin{Settings: []membership.Setting{{Key: "k", Value: "v"}}})
		s.forget()
	}
	if founder.pass(500 * time.Millisecond); !founder.m.Member() {
		t.Fatal("who asks could let nobody in either: the other seed has declined")
	}
	joiner.recv("b", membership.Welcome{State: membership.StateOf(cluster(t, member("b", up), member("m", joining)))})
	for _, s := range []*solo{founder, joiner} {
		if got := sentIn(s.all, membership.KindInitJoinAck); !slices.Equal(got, []string{"a", "c", "d"}) {
			t.Errorf("it is a member, and says so to %v", got)
		}
		if got := s.last(membership.KindInitJoinAck); got.(membership.InitJoinAck).Compatible { //nolint:errcheck // it is one
			t.Error("the settings of d differ")
		}
		s.forget()
		s.pass(10 * time.Second)
		if got := sentIn(s.all, membership.KindInitJoinAck); len(got) > 0 {
			t.Errorf("it says so again to %v", got)
		}
	}
}

func TestHowManyAreRemembered(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"m"}})
	for i := range 2000 {
		s.do(membership.Received{From: identity.Node{Name: "a", UID: uint64(i) + 1}, To: identity.Node{Name: "m"}, Data: membership.AppendMessage(nil, membership.InitJoin{})})
	}
	s.forget()
	s.pass(500 * time.Millisecond)
	if got := len(sentIn(s.all, membership.KindInitJoinAck)); got != 1000 {
		t.Errorf("%d of 2000 that have asked hear that it is a member", got)
	}
}

// The first seed takes one that declines for one that waits: it may have asked before the first one ran.
func TestWhoeverDeclinesHearsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"m", "a"}})
	s.recv("x", membership.InitJoinNack{}) // is no seed
	s.recv("a", membership.InitJoinNack{})
	s.recv("a", membership.InitJoinNack{})
	s.pass(500 * time.Millisecond)
	s.wants("founded", membership.KindInitJoinAck, "a")
}

// Three nodes that start together, in whatever order, are up within 3 s, and more of them within 10 s.
func TestNodesThatStartTogether(t *testing.T) {
	t.Parallel()
	for seed := range seeds(30) {
		for n, within := range map[int]time.Duration{3: 3 * time.Second, 7: 10 * time.Second} {
			w := newWorld(t, seed)
			all := names(n)
			var hosts []*host
			for _, i := range w.rand.Perm(n) {
				w.run(time.Duration(w.rand.Int64N(int64(100 * time.Millisecond))))
				h := w.start(all[i])
				h.do(membership.JoinSeeds{Seeds: all[:3]})
				hosts = append(hosts, h)
			}
			w.up(within, hosts...)
		}
	}
}

// The leader tells those that it finds up, and not too many of them.
func TestTheLeaderTellsWhoIsUp(t *testing.T) {
	t.Parallel()
	s := founded(t)
	all := names(20)
	for _, name := range all {
		s.named(name, membership.Join{})
	}
	s.forget()
	for s.status(node(all[0])) != up {
		s.now = s.m.Next()
		s.took(s.m.Tick(s.now))
	}
	to := sentIn(s.out, membership.KindState)
	if rounds := len(to) - 10; rounds < 0 || rounds > 1 || !slices.Equal(to[rounds:], all[:10]) {
		t.Errorf("it tells %v", to)
	}
}
