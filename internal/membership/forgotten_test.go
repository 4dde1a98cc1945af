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

// TestLeaveBeforeUp checks that a node that leaves before it was Up, and that only a crashed member
// knows, ends in order: another member accepts it again and learns that it leaves.
func TestLeaveBeforeUp(t *testing.T) {
	t.Parallel()
	for seed := range seeds(20) {
		w := newWorld(t, seed)
		hosts := w.join(names(4)...)
		w.up(time.Minute, hosts...)
		admits, rest := hosts[3], hosts[:3]
		late := w.start("late")
		w.cut = func(from, to string) bool { return from == admits.node.Name && to != "late" } // no member hears of the new node
		late.do(membership.JoinNode{Name: admits.node.Name})
		if !w.until(10*time.Second, func() bool { return late.m.Member() }) {
			t.Fatalf("seed %d: the node was not accepted:\n%s", seed, w.describe())
		}
		admits.kill()
		w.cut = func(string, string) bool { return false }
		w.until(time.Duration(w.rand.Int64N(int64(3*time.Second))), func() bool { return late.m.Gossip().Member(late.node).Status != joining })
		late.do(membership.Leave{Node: late.node})
		downs := w.now + 10*time.Second // an operator
		left := w.until(time.Minute, func() bool {
			if w.now >= downs {
				downs = membership.Never
				rest[0].do(membership.DownNode{Node: admits.node})
			}
			return late.dead
		})
		if !left || !late.stopped(membership.Left) {
			t.Fatalf("seed %d: the node has not left: %v\n%s", seed, late.lives, w.describe())
		}
		w.up(time.Minute, rest...)
	}
}

// TestForgotten checks that a node that leaves before it was Up ends although no member that knows
// it is alive or accepts it.
func TestForgotten(t *testing.T) {
	t.Parallel()
	s := newSolo(t)
	s.do(membership.JoinNode{Name: "a"})
	s.recv("a", membership.Welcome{State: membership.StateOf(cluster(t, member("a", up), member("b", up), neverUp("m", joining)))})
	s.pass(time.Minute, "a", "b")
	if len(s.sent(membership.KindJoin)) > 0 || !s.m.Member() {
		t.Fatal("a joining node has ended")
	}
	s.recv("b", membership.SeenOf(s.m.Gossip()))
	s.do(membership.Leave{Node: thisNode})
	s.forget()
	s.recv("b", membership.Stranger{})
	s.wants("a leaving node asks again", membership.KindJoin, "b")
	s.pass(19*time.Second, "a", "b")
	if len(s.all.Life) > 0 {
		t.Errorf("the node has ended early: %v", s.all.Life)
	}
	s.recv("b", membership.SeenOf(s.m.Gossip()))
	s.pass(19*time.Second, "a", "b")
	if !s.m.Member() {
		t.Error("the node has ended although a member knows it")
	}
	s.pass(3*time.Second, "a", "b")
	if !slices.Contains(s.all.Life, membership.Life{Kind: membership.Stopped, Reason: membership.Left}) {
		t.Errorf("life events %v, want Stopped with Left", s.all.Life)
	}
}

func neverUp(name string, status identity.Status) *identity.Member {
	m := *member(name, status)
	m.UpNumber = identity.NeverUp
	return &m
}

// TestChurn lets nodes join, crash and leave at random, also before they are Up. Each node that
// leaves ends in time, and the others form one cluster.
func TestChurn(t *testing.T) {
	t.Parallel()
	for seed := range seeds(60) {
		w := newWorld(t, seed)
		w.delay = 20 * time.Millisecond
		hosts := w.join(names(3)...)
		w.up(time.Minute, hosts...)
		leaves := map[*host]time.Duration{}
		live := func() (all []*host) {
			for _, h := range hosts {
				if !h.dead {
					all = append(all, h)
				}
			}
			return all
		}
		// operate downs crashed members, as an operator does.
		operate := func() {
			for _, h := range hosts {
				for _, by := range hosts[:1] {
					if h.dead && slices.ContainsFunc(by.m.Gossip().Unreachable(by.node), func(o *identity.Member) bool { return o.Node == h.node && o.Status != down && o.Status != exiting }) {
						by.do(membership.DownNode{Node: h.node})
					}
				}
			}
			for h, at := range leaves {
				if h.dead {
					delete(leaves, h)
				} else if w.now-at > 2*time.Minute {
					t.Fatalf("seed %d: %v asked to leave %v ago: %v\n%s", seed, h.node, w.now-at, h.m.Gossip().Member(h.node), w.describe())
				}
			}
		}
		for i := range 12 {
			all := live()
			switch n := w.rand.IntN(4); {
			case n < 2:
				via := all[w.rand.IntN(len(all))]
				h := w.start("new-" + string(rune('a'+i)))
				hosts = append(hosts, h)
				h.do(membership.JoinNode{Name: via.node.Name})
				w.run(time.Duration(w.rand.Int64N(int64(300 * time.Millisecond))))
				if w.rand.IntN(2) == 0 && via != hosts[0] {
					via.kill()
				}
				if w.rand.IntN(2) == 0 && h.m.Member() {
					leaves[h] = w.now
					h.do(membership.Leave{Node: h.node})
				}
			case n == 2 && len(all) > 2:
				all[1+w.rand.IntN(len(all)-1)].kill()
			case len(all) > 2:
				h := all[1+w.rand.IntN(len(all)-1)]
				if h.m.Member() {
					leaves[h] = w.now
					h.do(membership.Leave{Node: h.node})
				}
			}
			w.until(time.Duration(w.rand.Int64N(int64(10*time.Second))), func() bool { operate(); return false })
		}
		w.until(3*time.Minute, func() bool {
			operate()
			for _, h := range live() { // the member that it asked has crashed
				if !h.m.Member() {
					h.kill()
				}
			}
			return len(leaves) == 0 && w.agree(live()...)
		})
		if len(leaves) > 0 || !w.agree(live()...) {
			t.Fatalf("seed %d: %d nodes have not left, or the others do not agree:\n%s", seed, len(leaves), w.describe())
		}
	}
}
