// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// Most of the members leave, together or one after the other. Each of them leaves within the time
// that a process has for its shutdown: 5 s for the phase leave and 10 s for the phase exiting. The
// other members continue.
func TestManyLeave(t *testing.T) {
	t.Parallel()
	many := effort.Count(50, 100, 100)
	for _, c := range []struct {
		members, leave int
		over           time.Duration
		loss           float64
	}{{40, 30, 0, 0}, {40, 30, 0, 0.02}, {40, 30, 3 * time.Second, 0}, {40, 30, 10 * time.Second, 0.02}, {40, 40, time.Second, 0.02}, {many, many * 4 / 5, 0, 0}} {
		t.Run(fmt.Sprintf("%d of %d in %v with loss %v", c.leave, c.members, c.over, c.loss), func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(1) {
				w := newWorld(t, seed)
				w.checked = c.members < 50
				w.delay = 30 * time.Millisecond
				hosts := w.join(names(c.members)...)
				w.up(2*time.Minute, hosts...)
				w.loss = c.loss
				begun := map[*host]time.Duration{}
				look := func() bool {
					for h, at := range begun {
						if h.dead && !h.stopped(membership.Left) {
							t.Errorf("seed %d: life events of %v: %v, want Stopped with Left", seed, h.node, h.lives)
						}
						if h.dead {
							delete(begun, h)
						} else if w.now-at > 8*time.Second {
							t.Fatalf("seed %d: %v has not left after %v:\n%s", seed, h.node, w.now-at, w.describe())
						}
					}
					return len(begun) == 0
				}
				from := w.now
				for i, k := range w.rand.Perm(c.members)[:c.leave] {
					w.until(from+c.over*time.Duration(i)/time.Duration(c.leave)-w.now, func() bool { look(); return false })
					begun[hosts[k]] = w.now
					hosts[k].do(membership.Leave{Node: hosts[k].node})
				}
				w.until(time.Minute, look)
				hosts = slices.DeleteFunc(hosts, func(h *host) bool { return h.dead })
				w.up(30*time.Second, hosts...)
			}
		})
	}
}

func TestLeavingBecomesExiting(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.pass(time.Second/2, "n", "o")
	s.do(membership.Leave{Node: node("n")})
	s.seen("n", "o")
	if s.pass(0); s.status(node("n")) != exiting {
		t.Errorf("n is %v, want exiting", s.status(node("n")))
	}
}

// A node that wants to leave lets members that are leaving finish first, but not for long.
func TestLeaveAfterOthers(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.do(membership.Leave{Node: node("n")})
	s.do(membership.Leave{Node: thisNode})
	s.do(membership.Leave{})
	if s.pass(2*time.Second, "n", "o"); s.status(thisNode) != up {
		t.Errorf("this node is %v, want up", s.status(thisNode))
	}
	s.seen("n", "o")
	if s.pass(0); s.status(thisNode) != leaving || s.status(node("n")) != exiting {
		t.Errorf("n is %v and this node is %v, want exiting and leaving", s.status(node("n")), s.status(thisNode))
	}

	s = with(t, "n", "o")
	s.do(membership.Leave{Node: node("n")})
	s.do(membership.Leave{Node: thisNode})
	if s.pass(3*time.Second, "n", "o"); s.status(thisNode) != leaving {
		t.Errorf("after 3 s this node is %v, want leaving", s.status(thisNode))
	}
	s = with(t, "n", "o")
	s.do(membership.Leave{Node: node("n")})
	s.do(membership.Leave{Node: node("o")})
	if s.status(node("o")) != leaving {
		t.Error("a leave command of an operator waited for other members")
	}
}

// While members leave, gossip is faster until all reachable members have the state.
func TestGossipWhileLeaving(t *testing.T) {
	t.Parallel()
	rounds := func(s *solo, answering ...string) int {
		s.forget()
		s.pass(10*time.Second, answering...)
		return len(sentIn(s.all, membership.KindState)) + len(sentIn(s.all, membership.KindDigests))
	}
	s := with(t, "n", "o", "p")
	s.do(membership.Leave{Node: node("n")})
	s.seen("n", "p")
	if got := rounds(s, "n", "o", "p"); got < 90 || got > 110 {
		t.Errorf("%d rounds of gossip in 10 s while o has not seen that n leaves, want 90 to 110", got)
	}
	s.pass(10*time.Second, "n", "p") // o is unreachable
	s.seen("n", "p")
	if got := rounds(s, "n", "p"); got > 11 {
		t.Errorf("%d rounds of gossip in 10 s after all reachable members have seen that n leaves, want at most 11", got)
	}
	var many []string
	for i := range 130 {
		many = append(many, fmt.Sprintf("n%03d", i))
	}
	s = with(t, many...)
	s.do(membership.Leave{Node: node("n001")})
	s.seen(many[:120]...)
	if got := rounds(s, many...); got > 11 {
		t.Errorf("%d rounds of gossip in 10 s of a large cluster, want at most 11", got)
	}
}

// The leader informs all exiting members, not only the oldest ones.
func TestLeaderInformsExitingMembers(t *testing.T) {
	t.Parallel()
	all := []string{"n", "o", "p", "q", "r", "s"}
	s := with(t, all...)
	for _, name := range all[2:] {
		s.do(membership.Leave{Node: node(name)})
	}
	s.seen(all...)
	s.forget()
	s.pass(0)
	for _, name := range all[2:] {
		if s.status(node(name)) != exiting || !slices.Contains(sentIn(s.all, membership.KindState), name) {
			t.Errorf("%s is %v and the informed members are %v, want exiting and informed", name, s.status(node(name)), sentIn(s.all, membership.KindState))
		}
	}
}

// An exiting member marks a state as seen only when it is ready to be removed. If its confirmation
// was lost, the seen set confirms the same. Such a member receives no more gossip.
func TestExitingMemberInSeenSet(t *testing.T) {
	t.Parallel()
	s := with(t, "n", "o")
	s.do(membership.Leave{Node: node("n")})
	s.seen("n", "o")
	s.pass(0)
	s.recv("o", membership.SeenOf(s.m.Gossip().Saw(node("n"))))
	s.forget()
	s.pass(900*time.Millisecond, "o")
	if got := append(sentIn(s.all, membership.KindState), sentIn(s.all, membership.KindDigests)...); slices.Contains(got, "n") {
		t.Errorf("gossip was sent to %v, want none to n", got)
	}
	s.seen("o")
	if s.pass(time.Second, "o"); s.status(node("n")) != 0 {
		t.Errorf("n is %v, want removed", s.status(node("n")))
	}
}

// A stopping node sends its last gossip to members that may not have seen that others exit. Soon
// there may be no other node that could inform them.
func TestLastGossip(t *testing.T) {
	t.Parallel()
	s := with(t, "a", "b", "c", "d", "e", "f", "g", "h")
	all := membership.Change{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "m"} {
		o := *s.m.Gossip().Member(node(name))
		o.Status = exiting
		all.Put = append(all.Put, &o)
	}
	for _, o := range all.Put {
		leaves := *o
		leaves.Status = leaving
		s.recv("a", membership.StateOf(apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{&leaves}})))
	}
	s.recv("a", membership.StateOf(apply(t, s.m.Gossip(), node("a"), all)))
	e := s.do(membership.ExitingDone{})
	if got := sentIn(e, membership.KindState); len(got) != 5 || !slices.Contains(got, "g") || !slices.Contains(got, "h") {
		t.Errorf("the last gossip was sent to %v, want 5 members including g and h", got)
	}
	if got := sentIn(e, membership.KindExitingConfirmed); !slices.Contains(got, "g") || !slices.Contains(got, "h") {
		t.Errorf("the confirmation was sent to %v, want g and h to be included", got)
	}
}

// A node that sent InitJoin before this node was a member receives an offer as soon as this node is
// a member.
func TestWaitingNodesReceiveOffers(t *testing.T) {
	t.Parallel()
	founder := newSolo(t)
	founder.do(membership.JoinSeeds{Seeds: []string{"m", "a"}})
	joiner := newSolo(t)
	joiner.do(membership.JoinNode{Name: "b"})
	for _, s := range []*solo{founder, joiner} {
		for _, peer := range []string{"a", "c", "a"} {
			s.named(peer, membership.InitJoin{})
			s.wants("this node is not a member yet", membership.KindInitJoinNack, peer)
		}
		s.named("d", membership.InitJoin{Settings: []membership.Setting{{Key: "k", Value: "v"}}})
		s.forget()
	}
	if founder.pass(500 * time.Millisecond); !founder.m.Member() {
		t.Fatal("the first seed founded no cluster after the other seed has declined")
	}
	joiner.recv("b", membership.Welcome{State: membership.StateOf(cluster(t, member("b", up), member("m", joining)))})
	for _, s := range []*solo{founder, joiner} {
		if got := sentIn(s.all, membership.KindInitJoinAck); !slices.Equal(got, []string{"a", "c", "d"}) {
			t.Errorf("after this node became a member, it informed %v, want [a c d]", got)
		}
		if got := s.last(membership.KindInitJoinAck); got.(membership.InitJoinAck).Compatible { //nolint:errcheck // it is one
			t.Error("the offer to d is compatible although the settings differ")
		}
		s.forget()
		s.pass(10 * time.Second)
		if got := sentIn(s.all, membership.KindInitJoinAck); len(got) > 0 {
			t.Errorf("this node informed %v again", got)
		}
	}
}

func TestWaitingNodesLimit(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"m"}})
	for i := range 2000 {
		s.do(membership.Received{From: identity.Node{Name: "a", UID: uint64(i) + 1}, To: identity.Node{Name: "m"}, Data: membership.AppendMessage(nil, membership.InitJoin{})})
	}
	s.forget()
	s.pass(500 * time.Millisecond)
	if got := len(sentIn(s.all, membership.KindInitJoinAck)); got != 1000 {
		t.Errorf("%d of 2000 waiting nodes received an offer, want 1000", got)
	}
}

// The first seed treats a declining seed as waiting, because that seed may have sent its request
// before the first seed ran.
func TestDecliningSeedReceivesOffer(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinSeeds{Seeds: []string{"m", "a"}})
	s.recv("x", membership.InitJoinNack{}) // x is not a seed
	s.recv("a", membership.InitJoinNack{})
	s.recv("a", membership.InitJoinNack{})
	s.pass(500 * time.Millisecond)
	s.wants("this node has founded a cluster", membership.KindInitJoinAck, "a")
}

// Three nodes that start together, in any order, are Up within 3 s. More nodes are Up within 10 s.
func TestConcurrentStart(t *testing.T) {
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

// The leader informs a limited number of the members that become Up.
func TestLeaderInformsUpMembers(t *testing.T) {
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
		t.Errorf("the leader informed %v, want %v", to, all[:10])
	}
}
