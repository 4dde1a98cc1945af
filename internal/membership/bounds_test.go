// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"math"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

// today0 is the start of the nodes of today in seconds of Unix time.
const today0 = 1_800_000_000

// today returns a machine with the members a and b whose clock is right.
func today(t *testing.T) *solo {
	t.Helper()
	s := founded(t, func(c *membership.Config) { c.Started = time.Unix(today0, 0) })
	s.add("a", "b")
	return s
}

// TestNumbersTooFarAhead checks that a forged number does not freeze the membership: a node drops a
// number that its clock has not reached, and continues after the greatest number that it accepts.
func TestNumbersTooFarAhead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		forge func(g membership.Gossip, count uint64) membership.Gossip
	}{
		{"own tick", func(g membership.Gossip, count uint64) membership.Gossip {
			return membership.Forge(g, g.Clock().Merge(membership.Clock{{Node: thisNode, Count: count}}), g.Reachability(), nil)
		}},
		{"tick of another member", func(g membership.Gossip, count uint64) membership.Gossip {
			return membership.Forge(g, g.Clock().Merge(membership.Clock{{Node: node("b"), Count: count}}), g.Reachability(), nil)
		}},
		{"observer", func(g membership.Gossip, count uint64) membership.Gossip {
			rows := membership.Reachability{Observers: []membership.Observer{{Node: thisNode, Version: count}}}
			return membership.Forge(g, g.Clock().Add(node("a")), rows, nil)
		}},
		{"tombstone", func(g membership.Gossip, count uint64) membership.Gossip {
			return membership.Forge(g, g.Clock().Add(node("a")), g.Reachability(), []membership.Tombstone{{Node: node("x"), At: 1, Count: count}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := today(t)
			now := uint64(time.Unix(today0, 0).Add(s.now).UnixMicro())
			for i, count := range []uint64{1<<63 - 1, 1 << 63, 1 << 52, now + 1} {
				before := s.m.Gossip()
				s.recv("a", membership.StateOf(c.forge(before, count)))
				if s.m.Gossip().Clock().Compare(before.Clock()) != membership.Same || s.dropped(membership.DropAhead) != uint64(i+1) {
					t.Errorf("%d was accepted, or not counted: clock %v", count, s.m.Gossip().Clock())
				}
			}
			if n := s.logged("gossip with a number that cannot be reached yet"); n != 1 {
				t.Errorf("4 forged messages were logged %d times, want 1", n)
			}
			if s.recv("a", membership.StateOf(c.forge(s.m.Gossip(), now))); s.dropped(membership.DropAhead) != 4 {
				t.Errorf("%d was dropped", now)
			}
			// The state still changes, and another node accepts the change.
			peer := today(t)
			s.do(membership.DownNode{Node: node("b")})
			peer.now += time.Microsecond
			peer.recv("a", membership.StateOf(s.m.Gossip()))
			if peer.status(node("b")) != down {
				t.Errorf("a change after %d was not accepted, %d messages dropped", now, peer.dropped(membership.DropAhead))
			}
		})
	}
}

// TestUpNumbersTooFarAhead checks the same of the numbers by which the age of members is compared.
func TestUpNumbersTooFarAhead(t *testing.T) {
	t.Parallel()
	s := today(t)
	forge := func(up int32) membership.Gossip {
		x := member("x", leaving)
		x.UpNumber = up
		return apply(t, s.m.Gossip(), node("a"), membership.Change{Put: []*identity.Member{x}})
	}
	limit := int32(time.Unix(today0, 0).Add(s.now).Unix() - time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC).Unix())
	for i, up := range []int32{math.MaxInt32 - 1, 1 << 30, limit + 1} {
		s.recv("a", membership.StateOf(forge(up)))
		if s.status(node("x")) != 0 || s.dropped(membership.DropAhead) != uint64(i+1) {
			t.Errorf("the up-number %d was accepted", up)
		}
	}
	if s.recv("a", membership.StateOf(forge(limit))); s.status(node("x")) != leaving {
		t.Errorf("the up-number %d was dropped", limit)
	}
	// A welcome is checked like gossip.
	j := newSolo(t)
	j.do(membership.JoinNode{Name: "a"})
	x := member("a", up)
	x.UpNumber = math.MaxInt32 - 1
	j.recv("a", membership.Welcome{State: membership.StateOf(cluster(t, x, member("m", joining)))})
	if j.m.Member() || j.dropped(membership.DropAhead) != 1 {
		t.Error("a welcome with an up-number far ahead was accepted")
	}
}

// TestLastUpNumber checks that a leader that has used all up-numbers continues with the last one,
// and does not pass the number of members that were never Up.
func TestLastUpNumber(t *testing.T) {
	t.Parallel()
	s := founded(t, func(c *membership.Config) { c.Started = time.Unix(today0, 0).AddDate(90, 0, 0) })
	s.add("n")
	x := member("x", up)
	x.UpNumber = math.MaxInt32 - 1
	s.recv("n", membership.StateOf(apply(t, s.m.Gossip(), node("n"), membership.Change{Put: []*identity.Member{x}})))
	for _, name := range []string{"p", "q"} {
		s.named(name, membership.Join{})
	}
	s.seen("n", "p", "q", "x")
	s.pass(1100*time.Millisecond, "n", "p", "q", "x")
	for _, name := range []string{"p", "q"} {
		if got := s.m.Gossip().Member(node(name)); got.Status != up || got.UpNumber != math.MaxInt32-1 {
			t.Errorf("%s is %v with number %d, want Up with the last number", name, got.Status, got.UpNumber)
		}
	}
}
